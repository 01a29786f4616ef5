//! The hostile plugin in the real sandbox: `asp plugin run` starts asp-runtime and worker-init around it. Every probe
//! has its control in the same test, outside. They run twice: with the flags the shim asks for, and with a Node that
//! drops them, so that the sandbox alone must hold. Needs root, level 3, and in ASP_BIN an `asp` with asp-runtime and
//! worker-init beside it; `npm run test:sandbox`.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { chmodSync, copyFileSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const ASP = process.env.ASP_BIN ?? path('../../../../target/release/asp');
const NODE = process.env.ASP_NODE_BIN ?? process.execPath;
const SHIM = path('../../');
const HOSTILE = path('../hostile/');
const ABSTRACT = `asp-probe-${process.pid}`;
/** Of a call that never ends; the plugin's own bounds are checked against wall time, ten times this. */
const SHORT_S = 3;

let directory;
let targets;
before(async () => {
  // Readable by everybody: what stops the worker must be the sandbox, not the file's mode.
  directory = mkdtempSync(join(tmpdir(), 'asp-sandbox-'));
  chmodSync(directory, 0o755);
  makeServer();
  writeFileSync(join(directory, 'secret'), 'secret', { mode: 0o644 });
  mkdirSync(join(directory, 'open'), { mode: 0o777 });
  chmodSync(join(directory, 'open'), 0o777);
  targets = { tcp: createServer(), unix: createServer(), abstract: createServer(), udp: createSocket('udp4') };
  targets.udp.on('message', (message, { port, address }) => targets.udp.send(message, port, address));
  await Promise.all([
    new Promise((resolve) => targets.tcp.listen(0, '127.0.0.1', resolve)),
    new Promise((resolve) => targets.unix.listen(join(directory, 'u.sock'), resolve)),
    new Promise((resolve) => targets.abstract.listen(`\0${ABSTRACT}`, resolve)),
    new Promise((resolve) => targets.udp.bind(0, '127.0.0.1', resolve)),
  ]);
  chmodSync(join(directory, 'u.sock'), 0o777);
});
after(() => {
  for (const target of Object.values(targets)) target.close();
  rmSync(directory, { recursive: true, force: true });
});

function makeServer() {
  const server = join(directory, 'primitives', 'hostile');
  mkdirSync(join(server, 'plugins'), { recursive: true });
  cpSync(HOSTILE, join(server, 'plugins', 'hostile'), { recursive: true });
  writeFileSync(join(server, 'server.yaml'), `apiVersion: asp/v1
name: hostile
title: Hostile
description: Probes
version: 1.0.0
protocols: [mcp]
sessions: stateful
defaultExposure: allow
auth: {schemes: [jwt], issuers: [dev]}
primitives: [{ref: hostile/hostile}]
`);
  writeFileSync(join(server, 'hostile.yaml'), `id: hostile
name: Hostile
type: tool
version: 1.0.0
owner: platform@example.com
summary: Runs a probe
mutation: read_only
primitiveSchema: {input_schema: {type: object}, output_schema: {type: object}}
security: {riskClass: low}
runtime:
  mode: plugin
  language: node
  entrypoint: hostile.mjs
  resources: {cpu: 1, memory: 256M, pids: 40, files: 128, disk: 32Mi}
`);
}

/** A Node that forgets the flags of permission and freezing. */
function makeBareNode() {
  const bin = join(directory, 'bare', 'bin');
  mkdirSync(bin, { recursive: true });
  copyFileSync(NODE, join(bin, 'real'));
  writeFileSync(join(bin, 'node'), `#!/bin/sh
for flag do
  shift
  case $flag in --permission|--experimental-permission|--allow-*|--frozen-intrinsics) ;; *) set -- "$@" "$flag" ;; esac
done
exec '${join(bin, 'real')}' "$@"
`, { mode: 0o755 });
  return join(bin, 'node');
}

/** Runs a program to its end: {status, stdout, stderr, ms}. */
function execute(program, args, env) {
  return new Promise((resolve) => {
    const from = Date.now();
    execFile(program, args, { env: { ...process.env, ...env }, maxBuffer: 1 << 26 }, (error, stdout, stderr) => {
      resolve({ status: error?.code ?? 0, stdout, stderr, ms: Date.now() - from });
    });
  });
}

async function outside(probe, args = {}) {
  const { stdout } = await execute(NODE, [join(HOSTILE, 'run.mjs'), probe, JSON.stringify(args)]);
  return JSON.parse(stdout.trimEnd().split('\n').at(-1));
}

for (const [what, makeNode] of [['with the flags of the shim', () => NODE], ['by the sandbox alone', makeBareNode]]) {
  describe(what, () => {
    let node;
    before(() => {
      node = makeNode();
    });

    const run = (probe, args = {}, timeout = 60) => {
      const call = JSON.stringify({ probe, args });
      const options = ['plugin', 'run', 'hostile', join(directory, 'primitives'), '--arguments', call, '--timeout', String(timeout)];
      return execute(ASP, options, { ASP_PLUGIN_NODE: node, ASP_PLUGIN_NODE_SHIM: SHIM });
    };
    const inside = async (probe, args) => {
      const { status, stdout, stderr } = await run(probe, args);
      assert.equal(status, 0, stderr);
      const found = JSON.parse(stdout);
      if (node !== NODE) assert.notEqual(found.code, 'ERR_ACCESS_DENIED', 'Node refused, not the sandbox');
      return found;
    };

    test('no network, no socket but its own', async () => {
      const host = '127.0.0.1';
      for (const [probe, args] of [
        ['tcp', { host, port: targets.tcp.address().port }],
        ['udp', { host, port: targets.udp.address().port }],
        ['unix', { path: join(directory, 'u.sock') }],
        ['abstract', { name: ABSTRACT }],
        ['dns', { name: 'localhost.localdomain' }],
      ]) {
        if (probe !== 'dns') assert.equal((await outside(probe, args)).reached, true, `control of ${probe}`);
        assert.equal((await inside(probe, args)).reached, false, probe);
      }
      assert.equal((await inside('tcp', { host: '169.254.169.254', port: 80 })).reached, false, 'metadata');
    });

    test("no file but its own, and nobody else's process", async () => {
      for (const [probe, args] of [
        ['read', { path: join(directory, 'secret') }],
        ['write', { path: join(directory, 'open', what) }],
        ['list', { path: directory }],
        ['kill', { pid: process.pid }],
      ]) {
        assert.equal((await outside(probe, args)).reached, true, `control of ${probe}`);
        assert.equal((await inside(probe, args)).reached, false, probe);
      }
      assert.ok((await outside('processes')).pids.includes(process.pid), 'control of processes');
      const { reached, pids } = await inside('processes');
      assert.ok(!reached || pids.length < 5, `it sees ${pids}`);
    });

    test('no variable that it was not given', async () => {
      const { names } = await inside('env');
      const given = ['ASP_PLUGIN_CODE', 'ASP_PLUGIN_MANIFEST', 'ASP_WORKER_ID', 'ASP_WORKER_SOCKET', 'ASP_WORK_DIR', 'HOME', 'LANG', 'PATH', 'PWD', 'TMPDIR', 'TZ'];
      assert.deepEqual(names.filter((name) => !given.includes(name)), []);
    });

    test('bounds on processes, files and disk', async () => {
      for (const [probe, args] of [['fork', { count: 60 }], ['fds', { count: 500, path: '/dev/null' }]]) {
        assert.equal((await outside(probe, args)).reached, true, `control of ${probe}`);
        assert.equal((await inside(probe, args)).reached, false, probe);
      }
      assert.equal((await outside('disk', { mib: 64, directory })).reached, true, 'control of disk');
      assert.equal((await inside('disk', { mib: 64 })).reached, false, 'disk');
    });

    test('a worker that takes too much memory, ends or kills itself is a crash with its cause', async () => {
      for (const [probe, args, words] of [
        ['memory', { mib: 400 }, /memory bound/],
        ['exit', {}, /exited with code 70/],
        ['abort', {}, /signal 6/],
        ['segfault', {}, /signal 11/],
      ]) {
        const { status, stderr } = await run(probe, args);
        assert.notEqual(status, 0, probe);
        assert.match(stderr, words, probe);
      }
    });

    test('a busy loop, an ignored cancel and a stopped process end with the call', async () => {
      for (const probe of ['busy', 'ignore', 'stop']) {
        const { status, ms } = await run(probe, { ms: 600_000 }, SHORT_S);
        assert.notEqual(status, 0, probe);
        assert.ok(ms < 10 * SHORT_S * 1000, `${probe} took ${ms} ms`);
      }
    });

    test('a flood of output does no harm', async () => {
      assert.equal((await inside('logs', { mib: 50 })).reached, true);
    });
  });
}
