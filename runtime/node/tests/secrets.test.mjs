//! Named secrets: for tools and resources, in no environment, and for unit tests.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fakeContext } from '../src/testing.mjs';
import { read, startWorker } from './harness.mjs';

const SECRETS = { 'crm-key': 'hunter2' };

test('a tool has the secrets of its worker and no other', async () => {
  const worker = await (await startWorker('acts.mjs')).session({ secrets: SECRETS });
  try {
    worker.invoke('s1', { act: 'secret', name: 'crm-key' });
    const { completed } = await worker.result('s1');
    assert.deepEqual(read(completed.output), { text: 'hunter2', printed: '*** "***"', inEnvironment: false });
    worker.invoke('s2', { act: 'secret', name: 'other' });
    const { failed } = await worker.result('s2');
    assert.deepEqual([failed.code, failed.message], ['SECRET_UNAVAILABLE', 'secret other is not granted to this primitive']);
    assert.deepEqual(read(failed.details), { reason: 'not_granted' });
  } finally {
    await worker.stop();
  }
});

test('a unit test grants secrets by name', () => {
  const ctx = fakeContext({ secrets: SECRETS });
  assert.equal(ctx.secret('crm-key').reveal(), 'hunter2');
  assert.throws(() => ctx.secret('constructor'), { code: 'SECRET_UNAVAILABLE', reason: 'not_granted' });
});
