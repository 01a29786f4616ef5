//! The sample plugin csv_summary through the real worker process.
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { after, before, test } from 'node:test';
import { read, startWorker } from './harness.mjs';

const CODE = fileURLToPath(new URL('../../../primitives/samples-node/plugins/csv_summary/', import.meta.url));

let worker;
before(async () => {
  worker = await (await startWorker('csv_summary.mjs', { elicitations: ['which_column'] }, { code: CODE })).session();
});
after(() => worker.stop());

test('the only numeric column is summarised with progress', async () => {
  const { completed } = await worker.run({ csv: 'name,amount\nada,1\nbob,3\n' });
  assert.deepEqual(read(completed.output), { column: 'amount', rows: 2, count: 2, sum: 4, mean: 2, min: 1, max: 3, unusual: 0 });
  assert.equal(worker.inbox.filter(({ progress }) => progress).at(-1).progress.percent, 100);
});

test('it asks which column when there are several and takes the answer', async () => {
  const id = worker.start({ csv: 'a;b;c\r\n1;10;x\r\n2;"20";"y;z"\r\n', delimiter: ';' });
  const { elicitationId, requestedSchema } = await worker.next(({ elicitation }) => elicitation);
  assert.equal(elicitationId, 'which_column');
  assert.deepEqual(read(requestedSchema).properties.column.enum, ['a', 'b']);
  worker.send({ userInput: { requestId: id, elicitationId, action: 0, fields: { value: Buffer.from('{"column":"b"}') } } });
  const output = read((await worker.result(id)).completed.output);
  assert.deepEqual([output.column, output.sum], ['b', 30]);
});

test('a declined question, an unknown column or a table without numbers is told to the model', async () => {
  const id = worker.start({ csv: 'a,b\n1,2\n' });
  await worker.next(({ elicitation }) => elicitation);
  worker.send({ userInput: { requestId: id, elicitationId: 'which_column', action: 1 } });
  const declined = (await worker.result(id)).completed;
  assert.equal(declined.isError, true);
  for (const [args, words] of [
    [{ csv: 'a\n1\n', column: 'z' }, /no column "z"/],
    [{ csv: 'a\nx\n' }, /No column/],
    [{ csv: '\n' }, /empty/],
  ]) {
    const { completed } = await worker.run(args);
    assert.equal(completed.isError, true);
    assert.match(read(completed.content)[0].text, words);
  }
});

test('unusual rows become an artifact', async () => {
  const csv = `n,v\n${Array.from({ length: 50 }, (_, n) => `${n},1\n`).join('')}"odd, one",1000\n`;
  worker.inbox.length = 0;
  const { completed } = await worker.run({ csv, column: 'v' });
  const output = read(completed.output);
  const data = worker.inbox.filter(({ artifactData }) => artifactData).map(({ artifactData }) => artifactData.data.toString()).join('');
  assert.equal(data, 'n,v\r\n"odd, one",1000\r\n');
  assert.deepEqual([output.unusual, output.report], [1, worker.inbox.find(({ artifact }) => artifact).artifact.uri]);
});

test('a cancel stops it between batches', async () => {
  const id = worker.start({ csv: `v\n${'1\n'.repeat(10_000)}`, pauseMs: 1000 });
  await worker.next(({ progress }) => (progress?.requestId === id ? progress : undefined));
  worker.send({ cancel: { requestId: id } });
  assert.equal((await worker.result(id)).failed.code, 'CANCELLED');
});
