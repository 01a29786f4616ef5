//! The hostile fixtures do what they say outside a sandbox (their control), and what the shim alone stops it stops.
//! What only a sandbox stops is tested where there is one.
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { fileURLToPath } from 'node:url';
import { NODE_VERSION, read, startWorker } from './harness.mjs';

const HOSTILE = fileURLToPath(new URL('hostile/', import.meta.url));
const run = promisify(execFile);

async function outside(name, args = {}) {
  const { stdout } = await run(process.execPath, [join(HOSTILE, 'run.mjs'), name, JSON.stringify(args)], { maxBuffer: 64 * 1024 * 1024 });
  return JSON.parse(stdout.trimEnd().split('\n').at(-1));
}

let directory;
let tcp;
let unix;
let udp;
before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'asp-hostile-'));
  tcp = createServer((socket) => socket.on('error', () => {}));
  unix = createServer((socket) => socket.on('error', () => {}));
  udp = createSocket('udp4');
  udp.on('message', (message, { port, address }) => udp.send(message, port, address));
  await Promise.all([
    new Promise((resolve) => tcp.listen(0, '127.0.0.1', resolve)),
    new Promise((resolve) => unix.listen(join(directory, 'u.sock'), resolve)),
    new Promise((resolve) => udp.bind(0, '127.0.0.1', resolve)),
  ]);
});
after(() => {
  for (const socket of [tcp, unix, udp]) socket.close();
  rmSync(directory, { recursive: true, force: true });
});

test('outside a sandbox every probe gets through', async () => {
  const host = '127.0.0.1';
  for (const [name, args] of [
    ['tcp', { host, port: tcp.address().port }],
    ['udp', { host, port: udp.address().port }],
    ['unix', { path: join(directory, 'u.sock') }],
    ['dns', { name: 'localhost' }],
    ['env'],
    ['read', { path: '/etc/passwd' }],
    ['write', { path: join(directory, 'written') }],
    ['processes'],
    ['kill', { pid: process.pid }],
    ['fork', { count: 5 }],
    ['threads', { count: 2 }],
    ['memory', { mib: 8 }],
    ['fds', { count: 50, path: '/etc/passwd' }],
    ['disk', { mib: 2, directory }],
    ['logs', { mib: 1 }],
    ['busy', { ms: 10 }],
    ['ignore', { ms: 10 }],
  ]) {
    assert.equal((await outside(name, args)).reached, true, name);
  }
});

test('outside a sandbox the deadly ones are deadly', () => {
  const end = (name) => spawnSync(process.execPath, ['--max-old-space-size=64', join(HOSTILE, 'run.mjs'), name]);
  assert.equal(end('abort').signal, 'SIGABRT');
  assert.equal(end('segfault').signal, 'SIGSEGV');
  assert.equal(end('exit').status, 0);
  assert.equal(end('heap').signal, 'SIGABRT');
});

test('in a worker files, children and threads are refused by the command line already', async () => {
  const worker = await (await startWorker('hostile.mjs', {}, { code: HOSTILE })).session();
  const modern = Number(NODE_VERSION.split('.')[0]) >= 22;
  const refused = [['read', { path: '/etc/passwd' }], ['write', { path: join(directory, 'from-worker') }], ['processes'], ['fork', { count: 1 }]];
  if (modern) refused.push(['threads', { count: 1 }]);
  for (const [name, args] of refused) {
    worker.invoke(name, { probe: name, args });
    const found = read((await worker.result(name)).completed.output);
    assert.deepEqual([found.reached, found.code], [false, 'ERR_ACCESS_DENIED'], name);
  }
  await worker.stop();
});

for (const [name, ended] of [
  ['exit', { code: 70, signal: null }],
  ['abort', { code: null, signal: 'SIGABRT' }],
  ['segfault', { code: null, signal: 'SIGSEGV' }],
  ['heap', { code: null, signal: 'SIGABRT' }],
]) {
  test(`in a worker ${name} ends the process without a result`, async () => {
    const worker = await (await startWorker('hostile.mjs', {}, { code: HOSTILE })).session();
    worker.invoke('1', { probe: name });
    assert.deepEqual(await worker.ended, ended);
    assert.ok(!worker.inbox.some((message) => message.completed || message.failed));
  });
}
