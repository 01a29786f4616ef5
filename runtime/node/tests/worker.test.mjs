//! The worker's process: its token, its protocol faults, its exits, and the knobs it runs with.
import assert from 'node:assert/strict';
import * as http2 from 'node:http2';
import { connect } from 'node:net';
import { test } from 'node:test';
import { status } from '@grpc/grpc-js';
import { NODE_VERSION, read, startWorker } from './harness.mjs';

const OK = { code: 0, signal: null };
const CRASH = { code: 70, signal: null };
const PROTOCOL = { code: 76, signal: null };
const LOAD = { code: 78, signal: null };

function health(worker, token) {
  return new Promise((resolve) => {
    worker.client('ToolPlugin').Health({}, worker.metadata(token), (error, answer) => resolve({ error, answer }));
  });
}

test('a call without the token is refused, whichever method', async () => {
  const worker = await startWorker('acts.mjs');
  for (const token of [null, '', 'x', '0'.repeat(64), `${worker.token}0`]) {
    assert.equal((await health(worker, token)).error.code, status.UNAUTHENTICATED);
    worker.open(token);
    worker.send({ init: {} });
    assert.equal((await worker.status).code, status.UNAUTHENTICATED);
  }
  assert.equal((await health(worker)).answer.ok, true);
  await worker.session();
  assert.deepEqual(await worker.stop(), OK);
});

test('a worker without a token on standard input does not start', async () => {
  for (const token of ['', 'short', 'g'.repeat(64)]) {
    const worker = await startWorker('acts.mjs', {}, { token });
    assert.deepEqual(await worker.ended, LOAD);
    assert.match(worker.stderr, /no token/);
    assert.ok(token === '' || !worker.stderr.includes(token), 'the token was printed');
  }
});

test('init is answered with what the worker is', async () => {
  const worker = (await startWorker('acts.mjs')).open();
  worker.send({ init: { env: { FROM_INIT: 'yes', ASP_WORK_DIR: '/elsewhere' } } });
  const { ok, caps } = await worker.next((message) => message.init);
  assert.equal(ok, true);
  assert.match(caps.shim, /^node\/\d+\.\d+\.\d+$/);
  assert.equal(caps.checkpoint, 'true');
  worker.invoke('1', { act: 'facts' });
  assert.equal(read((await worker.result('1')).completed.output).env, 'yes');
  await worker.stop();
});

test('health tells of the heap and of collections', async () => {
  const worker = await (await startWorker('acts.mjs')).session();
  const vitals = async () => (await health(worker)).answer.vitals;
  const before = await vitals();
  assert.ok(Number(before.heapUsedBytes) > 1_000_000 && Number(before.heapUsedBytes) < Number(before.heapLimitBytes));
  worker.invoke('1', { act: 'litter' });
  assert.ok((await worker.result('1')).completed);
  // The engine tells of a collection soon after it; the harness ends a test that waits for ever.
  let after = before;
  while (Number(after.gcCount) === Number(before.gcCount)) after = await vitals();
  assert.ok(Number(after.gcMicros) > Number(before.gcMicros));
  await worker.stop();
});

test('what is written faster than it is read is not kept', async () => {
  const worker = await (await startWorker('acts.mjs')).session();
  worker.invoke('1', { act: 'shout' });
  assert.deepEqual(read((await worker.result('1')).completed.output), { kept: [0, 0] });
  await worker.stop();
});

test('a second session is refused and the first goes on', async () => {
  const worker = await (await startWorker('acts.mjs')).session();
  const second = worker.client('ToolPlugin').Session(worker.metadata());
  second.on('error', () => {});
  second.on('data', () => {});
  assert.equal((await new Promise((resolve) => second.on('status', resolve))).code, status.ALREADY_EXISTS);
  worker.invoke('1', { act: 'echo' });
  assert.ok((await worker.result('1')).completed);
  await worker.stop();
});

test('a message before init, a second init or an empty message ends the session', async () => {
  for (const messages of [[{ ping: { nonce: '1' } }], [{ init: {} }, { init: {} }], [{ init: {} }, {}], [{ init: {} }, { invoke: {} }]]) {
    const worker = (await startWorker('acts.mjs')).open();
    for (const message of messages) worker.send(message);
    assert.deepEqual(await worker.ended, PROTOCOL);
    assert.match(worker.stderr, /protocol:/);
  }
});

for (const [what, frame] of [
  ['garbage', Buffer.concat([Buffer.from([0, 0, 0, 0, 5]), Buffer.from('\xff\xff\xff\xff\xff', 'latin1')])],
  ['a huge length prefix', Buffer.from([0, 0xff, 0xff, 0xff, 0xff])],
  ['a compressed message', Buffer.from([1, 0, 0, 0, 0])],
  ['a field of another type', Buffer.from([0, 0, 0, 0, 2, 0x08, 0x01])],
]) {
  test(`${what} as the first frame ends the worker`, async () => {
    const worker = await startWorker('acts.mjs');
    const session = http2.connect('http://localhost', { createConnection: () => connect(worker.socket) });
    session.on('error', () => {});
    const stream = session.request({
      ':method': 'POST', ':path': '/asp.plugin.v1.ToolPlugin/Session', 'content-type': 'application/grpc', te: 'trailers',
      authorization: `Bearer ${worker.token}`,
    });
    stream.on('error', () => {});
    stream.resume();
    stream.write(frame);
    assert.deepEqual(await worker.ended, PROTOCOL);
    assert.match(worker.stderr, /protocol:/);
    session.destroy();
  });
}

test('a duplicate request id is dropped and the first call goes on', async () => {
  const worker = await (await startWorker('acts.mjs')).session();
  worker.invoke('1', { act: 'ignore' });
  await worker.next(({ log }) => log);
  worker.invoke('1', { act: 'echo' });
  worker.invoke('2', { act: 'release', id: '1' });
  assert.equal(read((await worker.result('1')).completed.output).ignored, true);
  worker.invoke('1', { act: 'echo' });
  assert.deepEqual(read((await worker.result('1')).completed.output), { echo: null });
  await worker.stop();
});

test('more calls than the pool allows are refused', async () => {
  const worker = await (await startWorker('acts.mjs', { pool: { mode: 'ephemeral' } })).session();
  worker.invoke('1', { act: 'ignore' });
  await worker.next(({ log }) => log);
  worker.invoke('2', { act: 'echo' });
  assert.equal((await worker.result('2')).failed.code, 'OVERLOADED');
  await worker.stop();
});

test('process.exit, an unhandled rejection and an exit while loading are crashes', async () => {
  for (const act of ['exit', 'reject']) {
    const worker = await (await startWorker('acts.mjs')).session();
    worker.invoke('1', { act });
    assert.deepEqual(await worker.ended, CRASH);
    assert.ok(!worker.inbox.some((message) => message.completed || message.failed));
    assert.equal(/the plugin called process\.exit","error":"exit code \d+ at acts\.mjs:\d+"/.test(worker.stderr), act === 'exit');
  }
  assert.deepEqual(await (await startWorker('exits.mjs')).ended, CRASH);
});

test('a plugin that cannot be loaded ends the worker with 78 and one line', async () => {
  const broken = [
    ['absent.mjs', {}, /ENOENT/],
    ['throws.mjs', {}, /no database/],
    ['needs_library.mjs', {}, /"needs_library\.mjs: there is no package @absent\/library: a library lies beside the code: npm install @absent\/library"/],
    ['requires_library.mjs', {}, /"requires_library\.mjs: there is no package absent-library: a library lies beside the code: npm install absent-library"/],
    ['several.mjs', {}, /several\.mjs has no tool named test, only forecast, listOrders/],
    ['several.mjs:absent', {}, /several\.mjs must export absent = tool\(\.\.\.\), not undefined/],
    ['no_export.mjs', {}, /must export default tool/],
    ['wrong_kind.mjs', {}, /must export default tool\(\.\.\.\), not prompt/],
    ['../plugin.json', {}, /outside the package/],
    ['acts.mjs', { format: 2 }, /format 2/],
    ['acts.mjs', { language: 'python' }, /language/],
    ['acts.mjs', { kind: 'delegate' }, /kind delegate/],
    ['acts.mjs', { inputSchema: { type: 'nothing' } }, /JSONType/],
  ];
  await Promise.all(broken.map(async ([entrypoint, manifest, reason]) => {
    const worker = await startWorker(entrypoint, manifest);
    assert.deepEqual(await worker.ended, LOAD, entrypoint);
    assert.match(worker.stderr, reason);
    assert.equal(worker.stderr.trimEnd().split('\n').filter((line) => !line.includes('Warning')).length, 1, worker.stderr);
  }));
});

test('of a module that does not parse the place is shown', async () => {
  const worker = await startWorker('unparsable.mjs');
  assert.deepEqual(await worker.ended, LOAD);
  assert.match(worker.stderr, /"error":"Unexpected token '='"/);
  assert.match(worker.stderr, /unparsable\.mjs:4\nconst = 5;\n +\^\n/);
});

test('a plugin that listens for errors hides none of its load', async () => {
  const worker = await startWorker('bad_config.mjs');
  assert.deepEqual(await worker.ended, LOAD);
  assert.match(worker.stderr, /bad_config\.mjs:4/);
});

test('TypeScript and CommonJS run as they are from Node 22.18 on, and are refused before', async () => {
  const [major, minor] = NODE_VERSION.split('.').map(Number);
  const able = major > 22 || (major === 22 && minor >= 18);
  for (const entrypoint of ['typed.mts', 'common.cjs']) {
    const worker = await startWorker(entrypoint);
    if (!able) {
      assert.deepEqual(await worker.ended, LOAD);
      continue;
    }
    await worker.session();
    worker.invoke('1', { n: 5 });
    assert.deepEqual(read((await worker.result('1')).completed.output), { n: 5 });
    await worker.stop();
  }
});

test('the knobs of the command line hold inside the process', async () => {
  const worker = await (await startWorker('knobs.mjs')).session();
  worker.invoke('1');
  const knobs = read((await worker.result('1')).completed.output);
  assert.deepEqual(knobs, {
    arrayFrozen: true, patched: 'TypeError', proto: false, addons: 'Error',
    permission: { own: true, work: true, code: false, etc: false, child: false },
  });
  await worker.stop();
});
