//! Arguments before the handler, the result after it, artifacts when they are emitted: JSON Schema 2020-12.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { read, startWorker } from './harness.mjs';

const MANIFEST = {
  inputSchema: {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties: {
      n: { type: 'integer' },
      at: { type: 'string', format: 'date-time' },
      pair: { prefixItems: [{ type: 'string' }, { type: 'number' }], items: false },
      artifact: {}, output: {}, isError: {}, toolError: {},
    },
    unevaluatedProperties: false,
    'x-unknown': true,
  },
  outputSchema: { type: 'object', required: ['rows'], properties: { rows: { $ref: '#/$defs/count' } }, $defs: { count: { type: 'integer' } } },
  artifactSchema: {
    type: 'array', minItems: 2,
    items: { $ref: '#/$defs/file' },
    $defs: { file: { type: 'object', required: ['type', 'uri'], properties: { type: { enum: ['csv', 'json'] } } } },
  },
};

let worker;
before(async () => {
  worker = await (await startWorker('table.mjs', MANIFEST)).session();
});
after(() => worker.stop());

test('arguments within the schema reach the handler', async () => {
  assert.ok((await worker.run({ n: 1, at: '2026-01-02T03:04:05Z', pair: ['a', 1] })).completed);
});

for (const [args, message] of [
  [{ n: 1.5 }, /\/n must be integer/],
  [{ at: 'yesterday' }, /\/at must match format "date-time"/],
  [{ pair: ['a', 1, 2] }, /\/pair/],
  [{ pair: [1] }, /\/pair\/0 must be string/],
  [{ other: 1 }, /unevaluated properties: other/],
  [[], /must be object/],
]) {
  test(`arguments ${JSON.stringify(args)} are refused before the handler runs`, async () => {
    const { failed } = await worker.run(args);
    assert.equal(failed.code, 'INVALID_ARGUMENT');
    assert.match(failed.message, message);
  });
}

test('arguments that are no JSON fail the call only', async () => {
  worker.invoke('bad', {}, { arguments: { value: Buffer.from('{"n":') } });
  assert.equal((await worker.result('bad')).failed.code, 'INVALID_ARGUMENT');
  assert.ok((await worker.run({})).completed);
});

for (const output of [{ rows: 'many' }, {}, 'text', null]) {
  test(`a result of ${JSON.stringify(output)} is refused`, async () => {
    const { failed, completed } = await worker.run({ output: output ?? [] });
    assert.equal(failed?.code, 'INVALID_OUTPUT', JSON.stringify(read(completed?.output)));
  });
}

test('a failure that the model reads needs no structured result', async () => {
  for (const args of [{ isError: true }, { toolError: true }]) {
    const { completed } = await worker.run(args);
    assert.deepEqual([completed.isError, completed.output], [true, null]);
  }
});

test('an artifact is judged by the items of the artifact schema', async () => {
  assert.ok((await worker.run({ artifact: { name: 'a.csv', type: 'csv', data: 'x' } })).completed);
  worker.inbox.length = 0;
  const { failed } = await worker.run({ artifact: { name: 'b.exe', type: 'exe', data: 'x' } });
  assert.equal(failed.code, 'ARTIFACT_REFUSED');
  assert.match(failed.message, /artifact b\.exe: \/type/);
  assert.ok(!worker.inbox.some((message) => message.artifactData));
});
