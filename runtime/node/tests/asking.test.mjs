//! Prompts and resources that ask: their call ends with what they ask, and they are called again with the answers.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { read, startWorker } from './harness.mjs';

const bytes = (value) => ({ value: Buffer.from(JSON.stringify(value)) });
const DECLARED = { elicitations: ['name'], delegations: ['roots', 'model'] };

test('a prompt asks together what it asks at a time, and is called again until it has asked all', async () => {
  const worker = await startWorker('asks_prompt.mjs', { kind: 'prompt', ...DECLARED });
  try {
    const client = worker.client('PromptPlugin');
    const get = (given) =>
      new Promise((resolve, reject) => {
        const done = (error, answer) => (error ? reject(error) : resolve(answer));
        client.Get({ name: 'x', requestId: 'r', given }, worker.metadata(), done);
      });
    const first = await get(undefined);
    assert.deepEqual(first.asked.elicitations.map(({ elicitationId }) => elicitationId), ['name']);
    assert.deepEqual(first.asked.delegations.map(({ delegateId }) => delegateId), ['roots']);
    const given = {
      userInputs: [{ elicitationId: 'name', fields: bytes({ name: 'Ada' }) }],
      delegationResults: [
        { correlationId: first.asked.delegations[0].correlationId, result: bytes({ json: { roots: [1, 2] } }) },
      ],
    };
    const [model] = (await get(given)).asked.delegations;
    assert.deepEqual([model.delegateId, read(model.input)], ['model', 'Ada']);
    given.delegationResults.push({ correlationId: model.correlationId, error: 'unsupported' });
    const { asked, messages } = await get(given);
    assert.ok(!asked);
    assert.equal(read(messages[0].content).text, 'Ada 2 unsupported');
  } finally {
    await worker.stop();
  }
});

test('a resource that asks ends with its question, and is read again with the answer', async () => {
  const worker = await startWorker('asks_resource.mjs', { kind: 'resource', ...DECLARED });
  try {
    const client = worker.client('ResourcePlugin');
    const readAll = async (given) => {
      const chunks = [];
      const stream = client.Read({ uri: 'x://r', requestId: 'r', given }, worker.metadata());
      for await (const chunk of stream) chunks.push(chunk);
      return chunks;
    };
    const asked = (await readAll(undefined)).at(-1).asked;
    assert.deepEqual(asked.elicitations.map(({ elicitationId }) => elicitationId), ['name']);
    for (const [answer, expected] of [[{ action: 1 }, 'decline'], [{ error: 'unsupported' }, 'unsupported']]) {
      const chunks = await readAll({ userInputs: [{ elicitationId: 'name', ...answer }] });
      assert.deepEqual(chunks.map(({ text }) => text), ['first', expected]);
    }
  } finally {
    await worker.stop();
  }
});
