//! What a call keeps beyond its end: the messages of its storage, their bound, and the twin for unit tests.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { tool } from '../src/index.mjs';
import { FakeStorage, callTool, fakeContext } from '../src/testing.mjs';
import { read, startWorker } from './harness.mjs';

let worker;
before(async () => {
  worker = await (await startWorker('acts.mjs')).session();
});
after(() => worker.stop());

const bytes = (value) => ({ value: Buffer.from(JSON.stringify(value)) });
const asked = (requestId) => worker.next(({ storageRequested }) => (storageRequested?.requestId === requestId ? storageRequested : undefined));
const answer = ({ requestId, correlationId }, result) => worker.send({ storageAnswer: { requestId, correlationId, ...result } });

test('a request is sent with its parts and answered', async () => {
  worker.invoke('s1', { act: 'store' });
  const get = await asked('s1');
  assert.deepEqual([get.ofUser, get.get.key], [true, 'n']);
  answer(get, { value: bytes(4), version: 7 });
  const { put, ofUser, ...rest } = await asked('s1');
  assert.deepEqual([put.key, read(put.value), Number(put.ifVersion), ofUser], ['n', 5, 7, true]);
  assert.deepEqual([Number(put.ttl.seconds), put.ttl.nanos], [1, 500_000_000]);
  answer(rest, { version: Number.MAX_SAFE_INTEGER });
  const first = await asked('s1');
  assert.deepEqual([first.list.prefix, first.list.after, first.ofUser], ['p', '', false]);
  answer(first, { keys: ['p1', 'p2'], hasMore: true });
  const second = await asked('s1');
  assert.equal(second.list.after, 'p2');
  answer(second, { keys: ['p3'] });
  const gone = await asked('s1');
  assert.equal(gone.delete.key, 'x');
  answer(gone, { deleted: true });
  const { completed } = await worker.result('s1');
  assert.deepEqual(read(completed.output), { version: Number.MAX_SAFE_INTEGER, keys: ['p1', 'p2', 'p3'], gone: true });
});

test('a refusal is an error with its reason', async () => {
  worker.invoke('s2', { act: 'store' });
  answer(await asked('s2'), { error: 'not_granted' });
  assert.deepEqual(read((await worker.result('s2')).completed.output), { code: 'STORAGE_FAILED', reason: 'not_granted' });
});

test('at most sixteen requests wait for an answer, the others for a place', async () => {
  worker.invoke('s3', { act: 'fetches', count: 18 });
  const open = [];
  for (let n = 0; n < 16; n += 1) open.push(await asked('s3'));
  assert.equal(worker.inbox.filter(({ storageRequested }) => storageRequested?.requestId === 's3').length, 0);
  answer(open[0], { value: bytes(0) });
  open.push(await asked('s3'));
  answer(open[1], { value: bytes(1) });
  open.push(await asked('s3'));
  open.slice(2).forEach((one, n) => answer(one, { value: bytes(n + 2) }));
  const { completed } = await worker.result('s3');
  assert.deepEqual(read(completed.output).got, Array.from({ length: 18 }, (_, n) => n));
});

test('a cancelled call waits for no answer', async () => {
  worker.invoke('s4', { act: 'fetches', count: 20 });
  await asked('s4');
  worker.send({ cancel: { requestId: 's4', reason: 'enough' } });
  assert.equal((await worker.result('s4')).failed.code, 'CANCELLED');
});

const count = tool(async (args, ctx) => {
  const found = await ctx.storage.getVersioned('n');
  const number = (found?.value ?? 0) + 1;
  await ctx.storage.put('n', number, { ifVersion: found?.version ?? 0 });
  await ctx.storage.put('mine', number, { user: true });
  return [number, await ctx.storage.get('mine', { user: true }), (await ctx.storage.get('mine')) ?? null];
});

test('the twin keeps values for other calls of the org and of the user', async () => {
  const storage = new FakeStorage();
  assert.deepEqual(await callTool(count, {}, fakeContext({ storage })), [1, 1, null]);
  const bob = fakeContext({ storage, caller: { user: 'bob' } });
  assert.deepEqual(await callTool(count, {}, bob), [2, 2, null]);
  assert.equal(await fakeContext({ storage }).storage.get('mine', { user: true }), 1);
  assert.equal(await fakeContext({ storage, caller: { tenant: 'globex' } }).storage.get('n'), undefined);
  assert.equal(await bob.storage.delete('mine', { user: true }), true);
  assert.equal(await bob.storage.delete('mine', { user: true }), false);
});

const large = 'x'.repeat(65_534);
for (const [reason, act] of [
  ['bad_key', (storage) => storage.get('')],
  ['bad_key', (storage) => storage.put('a\n', 1)],
  ['bad_key', (storage) => storage.delete('ä'.repeat(129))],
  ['bad_key', (storage) => storage.list('\u0000')],
  ['bad_ttl', (storage) => storage.put('k', 1, { ttlSeconds: 0.5 })],
  ['bad_ttl', (storage) => storage.put('k', 1, { ttlSeconds: 90 * 24 * 3600 + 1 })],
  ['too_large', (storage) => storage.put('k', `${large}x`)],
  ['conflict', (storage) => storage.put('k', 1, { ifVersion: 3 })],
  ['storage_full', (storage) => Promise.all(Array.from({ length: 65 }, (_, n) => storage.put(String(n), large)))],
]) {
  test(`the twin refuses with ${reason}: ${act}`, async () => {
    await assert.rejects(act(fakeContext().storage), { code: 'STORAGE_FAILED', reason });
  });
}

test('the twin lists in pages, expires, and fails as the test wants', async () => {
  const storage = new FakeStorage();
  const { storage: own } = fakeContext({ storage });
  const keys = Array.from({ length: 205 }, (_, n) => `k${String(n).padStart(3, '0')}`);
  for (const key of keys) await own.put(key, null, { ttlSeconds: 60 });
  for (const key of ['\u{1f600}', '\uff5e', 'z']) await own.put(key, 1);
  assert.deepEqual(await own.list('k'), keys);
  assert.deepEqual((await own.list()).slice(-3), ['z', '\uff5e', '\u{1f600}']);
  assert.equal(await own.get('k000'), null);
  storage.advance(61);
  assert.equal(await own.get('k000'), undefined);
  storage.error = 'unavailable';
  await assert.rejects(own.get('z'), { code: 'STORAGE_FAILED', reason: 'unavailable' });
});

test('a version and a time to live are numbers', async () => {
  const { storage } = fakeContext();
  for (const options of [{ ifVersion: -1 }, { ifVersion: 0.5 }, { ttlSeconds: NaN }, { ttlSeconds: '1' }]) {
    await assert.rejects(storage.put('k', 1, options), TypeError);
  }
});
