//! The package as its users get it: its types, its exports, and its copy of the protocol.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import * as api from '../src/index.mjs';
import { workerFlags } from '../src/flags.mjs';
import { descriptor } from '../scripts/generate.mjs';

const path = (name) => fileURLToPath(new URL(name, import.meta.url));

test('a TypeScript plugin compiles against the types and its mistakes are found', () => {
  const compiled = spawnSync(process.execPath, [path('../node_modules/typescript/bin/tsc'), '-p', path('types/tsconfig.json')], { encoding: 'utf8' });
  assert.equal(compiled.stdout, '');
  assert.equal(compiled.status, 0, compiled.stderr);
});

test('the types declare what the package exports', () => {
  const types = readFileSync(path('../src/index.d.ts'), 'utf8');
  const declared = [...types.matchAll(/^export (?:function|class|\{) ?(\w+)/gm)].map((match) => match[1]);
  // A function with several signatures is declared as often.
  assert.deepEqual([...new Set(declared)].sort(), Object.keys(api).sort());
});

test('the descriptor is the one of proto/plugin.proto', () => {
  assert.equal(readFileSync(path('../src/wire/plugin.json'), 'utf8'), descriptor(), 'run: npm run generate');
});

test('a definition needs functions', () => {
  for (const broken of [() => api.tool({}), () => api.resource({}), () => api.resource({ read() {}, list: 1 }), () => api.prompt(1)]) {
    assert.throws(broken, TypeError);
  }
  assert.throws(() => new api.CallError('not a code', 'x'), TypeError);
  assert.throws(() => api.result({ content: 'text' }), TypeError);
});

test('the errors of another copy of the package are known', async () => {
  const { isCallError, isToolError } = await import('../src/errors.mjs?other-copy');
  assert.ok(isCallError(new api.CallError('NOT_FOUND', 'x')));
  assert.ok(isToolError(new api.ToolError('x')));
  assert.ok(!isCallError(Object.assign(new Error('x'), { code: 'ENOENT' })));
});

test('each release gets the flags it knows', () => {
  const flags = (version, proxy = false) => workerFlags(version, { plugin: '/p', proxy });
  assert.ok(flags('20.20.2').includes('--experimental-permission'));
  assert.ok(!flags('20.20.2', true).includes('--use-env-proxy'));
  assert.ok(flags('22.23.3').includes('--permission'));
  assert.ok(flags('22.23.3', true).includes('--use-env-proxy'));
  assert.ok(!flags('22.23.3').includes('--use-env-proxy'));
  assert.ok(!flags('24.21.0').includes('--allow-net'));
  assert.ok(flags('25.9.0').includes('--allow-net'));
});
