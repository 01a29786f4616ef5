//! What an author learns of a plugin that fails: the place, the cause, and the setting that changes a limit.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startWorker } from './harness.mjs';

let worker;
before(async () => {
  worker = await (await startWorker('fails.mjs', {}, { env: { ASP_DEVELOPMENT: 'true' } })).session();
});
after(() => worker.stop());

async function message(act) {
  const { failed } = await worker.run({ act });
  assert.equal(failed.code, 'INTERNAL');
  return failed.message;
}

test('in development the caller learns what was thrown and where', async () => {
  assert.match(await message('type'), /^fails\.mjs:6: TypeError: Cannot read properties of undefined/);
});

test('a blocked network is named with its key, in the log after the cause', async () => {
  assert.match(await message('network'), /TypeError: fetch failed: blocked: .*security\.allowedDomains/);
  await worker.printed('caused by: Error: getaddrinfo EAI_AGAIN example.org', 'stderr');
});

test('a process that may not be started is told so', async () => {
  assert.match(await message('process'), /blocked: a plugin in Node starts no processes/);
});

test('a result that is not JSON is told with the reason, in the log too', async () => {
  const { failed } = await worker.run({ act: 'bigint' });
  assert.equal(failed.message, 'the result is not JSON: TypeError: Do not know how to serialize a BigInt');
  await worker.printed('Do not know how to serialize a BigInt', 'stderr');
  assert.equal((await worker.run({ act: 'function' })).failed.message, 'the result is not JSON, but a function');
});

test('an error that cannot be read ends the call all the same', async () => {
  assert.ok(await message('odd'));
});
