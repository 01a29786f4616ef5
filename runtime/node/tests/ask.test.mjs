//! What a call asks: elicitation, delegation, checkpoints; and going on from a checkpoint on another worker.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { read, startWorker } from './harness.mjs';

let worker;
before(async () => {
  worker = await (await startWorker('acts.mjs')).session();
});
after(() => worker.stop());

const bytes = (value) => ({ value: Buffer.from(JSON.stringify(value)) });
const ask = (requestId) => worker.next(({ elicitation }) => (elicitation?.requestId === requestId ? elicitation : undefined));
const delegated = (requestId) => worker.next(({ delegation }) => (delegation?.requestId === requestId ? delegation : undefined));
const saved = (requestId) => worker.next(({ checkpoint }) => (checkpoint?.requestId === requestId ? checkpoint : undefined));

async function elicit(requestId, answer, question) {
  worker.invoke(requestId, { act: 'elicit', id: 'approve', question });
  const asked = await ask(requestId);
  worker.send({ userInput: { requestId, elicitationId: 'approve', ...answer } });
  const { completed } = await worker.result(requestId);
  return { asked, answer: read(completed.output) };
}

test('an accepted elicitation gives the fields', async () => {
  const question = { title: 'T', message: 'M', fields: { ok: { type: 'boolean', label: 'Ok?' }, why: { required: false } } };
  const { asked, answer } = await elicit('e1', { action: 0, fields: bytes({ ok: true }) }, question);
  assert.deepEqual(answer, { action: 'accept', fields: { ok: true } });
  assert.deepEqual([asked.elicitationId, asked.title, asked.message, asked.taskId], ['approve', 'T', 'M', 'T-e1']);
  assert.deepEqual(asked.fields.map(({ name, type, required, label }) => [name, type, required, label]), [
    ['ok', 'boolean', true, 'Ok?'], ['why', 'string', false, ''],
  ]);
});

test('an elicitation may bring a form schema of its own', async () => {
  const schema = { type: 'object', properties: { column: { enum: ['a', 'b'] } } };
  const { asked } = await elicit('e2', { action: 0 }, { schema });
  assert.deepEqual(read(asked.requestedSchema), schema);
});

test('a declined and a cancelled elicitation give no fields', async () => {
  assert.deepEqual((await elicit('e3', { action: 1, fields: bytes({ ok: true }) })).answer, { action: 'decline', fields: {} });
  assert.deepEqual((await elicit('e4', { action: 2 })).answer, { action: 'cancel', fields: {} });
});

test('an elicitation that nobody can be asked is an error with its reason', async () => {
  assert.deepEqual((await elicit('e5', { error: 'unsupported' })).answer, { code: 'INPUT_UNSUPPORTED', reason: 'unsupported' });
  assert.deepEqual((await elicit('e6', { error: 'expired' })).answer, { code: 'INPUT_EXPIRED', reason: 'expired' });
});

test('an undeclared elicitation or delegation never leaves the worker', async () => {
  for (const args of [{ act: 'elicit', id: 'other', rethrow: true }, { act: 'delegate', id: 'other' }]) {
    worker.invoke('u', args);
    const { failed } = await worker.result('u');
    assert.equal(failed.code, 'UNDECLARED');
    assert.match(failed.message, /add it to primitiveDependencies\.(elicitations|delegations) of the spec/);
  }
  assert.equal(worker.inbox.length, 0);
});

test('an answer to another call, question or to nobody is dropped', async () => {
  worker.invoke('e7', { act: 'elicit', id: 'approve' });
  await ask('e7');
  worker.send({ userInput: { requestId: 'nobody', elicitationId: 'approve' } });
  worker.send({ userInput: { requestId: 'e7', elicitationId: 'policy' } });
  worker.send({ delegationResult: { requestId: 'e7', correlationId: 'approve' } });
  worker.send({ userInput: { requestId: 'e7', elicitationId: 'approve', action: 1 } });
  assert.equal(read((await worker.result('e7')).completed.output).action, 'decline');
});

test('several calls wait at once and each gets its own answer', async () => {
  const ids = ['s1', 's2', 's3', 's4'];
  for (const id of ids) worker.invoke(id, { act: 'elicit', id: 'approve' });
  for (const id of ids) await ask(id);
  for (const id of [...ids].reverse()) {
    worker.send({ userInput: { requestId: id, elicitationId: 'approve', action: 0, fields: bytes({ of: id }) } });
    assert.equal(read((await worker.result(id)).completed.output).fields.of, id);
  }
});

test('a delegation gives its result', async () => {
  worker.invoke('d1', { act: 'delegate', input: { text: 'x' }, timeout: 2.5 });
  const { correlationId, delegateId, input, timeout } = await delegated('d1');
  assert.deepEqual([delegateId, read(input), Number(timeout.seconds), timeout.nanos], ['classifier', { text: 'x' }, 2, 500_000_000]);
  worker.send({ delegationResult: { requestId: 'd1', correlationId, result: bytes(['pii']) } });
  assert.deepEqual(read((await worker.result('d1')).completed.output), { answer: ['pii'] });
});

test('a delegation that fails is an error with its reason', async () => {
  worker.invoke('d2', { act: 'delegate', input: 1 });
  const { correlationId } = await delegated('d2');
  worker.send({ delegationResult: { requestId: 'd2', correlationId, error: 'refused' } });
  const { failed } = await worker.result('d2');
  assert.deepEqual([failed.code, failed.message], ['DELEGATION_FAILED', 'delegation classifier: refused']);
});

test('a delegation without an answer ends at its timeout and a late answer is dropped', async () => {
  worker.invoke('d3', { act: 'delegate', input: 1, timeout: 0.02 });
  const { correlationId } = await delegated('d3');
  const { failed } = await worker.result('d3');
  assert.deepEqual([failed.code, read(failed.details)], ['DELEGATION_FAILED', { reason: 'expired' }]);
  worker.send({ delegationResult: { requestId: 'd3', correlationId, result: bytes(1) } });
  worker.invoke('d4', { act: 'echo' });
  assert.ok((await worker.result('d4')).completed);
});

test('a call has at most 16 open questions', async () => {
  worker.invoke('d5', { act: 'flood', count: 17 });
  assert.equal((await worker.result('d5')).failed.code, 'OVERLOADED');
  assert.equal(worker.inbox.filter(({ delegation }) => delegation).length, 16);
  worker.inbox.length = 0;
});

test('a checkpoint returns when it is acknowledged and its seq rises', async () => {
  worker.invoke('c1', { act: 'steps', to: 2 });
  const first = await saved('c1');
  worker.invoke('c1-other', { act: 'echo' });
  await worker.result('c1-other');
  assert.ok(!worker.inbox.some(({ checkpoint }) => checkpoint), 'the second checkpoint did not wait');
  worker.send({ checkpointAck: { requestId: 'c1', seq: first.seq } });
  const second = await saved('c1');
  assert.ok(Number(second.seq) > Number(first.seq));
  worker.send({ checkpointAck: { requestId: 'c1', seq: second.seq } });
  assert.deepEqual(read((await worker.result('c1')).completed.output), { from: 0, done: 2 });
});

test('a checkpoint that is refused or too large is an error', async () => {
  worker.invoke('c2', { act: 'steps', to: 1 });
  const { seq } = await saved('c2');
  worker.send({ checkpointAck: { requestId: 'c2', seq, error: 'unavailable' } });
  assert.equal((await worker.result('c2')).failed.code, 'CHECKPOINT_FAILED');
  worker.invoke('c3', { act: 'big' });
  assert.match((await worker.result('c3')).failed.message, /allowed are 65536/);
  assert.equal(worker.inbox.length, 0);
});

test('a resumed call goes on from its checkpoint', async () => {
  worker.invoke('r1', { act: 'steps', to: 3 });
  const { capsule, seq } = await saved('r1');
  worker.send({ cancel: { requestId: 'r1' } });
  await worker.result('r1');
  worker.inbox.length = 0;
  worker.invoke('r1', { act: 'steps', to: 2 }, { resume: { capsule, seq, attempt: 2 } });
  const next = await saved('r1');
  assert.equal(Number(next.seq), Number(seq) + 1);
  worker.send({ checkpointAck: { requestId: 'r1', seq: next.seq } });
  assert.deepEqual(read((await worker.result('r1')).completed.output), { from: 1, done: 2 });
});

test('a call that saved nothing is resumed without state', async () => {
  worker.invoke('r2', { act: 'facts' }, { resume: { attempt: 3, resumeToken: 'proof' } });
  assert.deepEqual(read((await worker.result('r2')).completed.output).resume, { seq: 0, attempt: 3, token: '***' });
});

test('a capsule that is no capsule fails the call', async () => {
  worker.invoke('r3', { act: 'facts' }, { resume: { capsule: Buffer.from('{"format":9}'), seq: 1, attempt: 2 } });
  assert.equal((await worker.result('r3')).failed.code, 'INTERNAL');
});

test('after a resume the kept answers find their questions and nobody is asked twice', async () => {
  const answer = (n) => ({ requestId: 'k1', elicitationId: 'approve', action: 0, fields: bytes({ n }) });
  worker.invoke('k1', { act: 'ask_save_ask' });
  await ask('k1');
  worker.send({ userInput: answer(1) });
  const { capsule, seq } = await saved('k1');
  worker.send({ checkpointAck: { requestId: 'k1', seq } });
  await ask('k1');
  worker.send({ userInput: answer(2) });
  const { correlationId } = await delegated('k1');
  worker.send({ cancel: { requestId: 'k1' } });
  await worker.result('k1');
  worker.inbox.length = 0;

  const delegationResults = [{ requestId: 'k1', correlationId, result: bytes('fine') }];
  const resume = { capsule, seq, attempt: 2, userInputs: [answer(1), answer(2)], delegationResults };
  worker.invoke('k1', { act: 'ask_save_ask' }, { resume });
  const again = await saved('k1');
  worker.send({ checkpointAck: { requestId: 'k1', seq: again.seq } });
  assert.deepEqual(read((await worker.result('k1')).completed.output), { first: 1, second: 2, label: 'fine' });
  assert.ok(!worker.inbox.some(({ elicitation, delegation }) => elicitation || delegation));
});

test('a question that failed before the checkpoint does not use up a kept answer', async () => {
  worker.invoke('k2', { act: 'ask_in_vain' });
  await ask('k2');
  worker.send({ userInput: { requestId: 'k2', elicitationId: 'approve', error: 'expired' } });
  const { capsule, seq } = await saved('k2');
  worker.send({ cancel: { requestId: 'k2' } });
  await worker.result('k2');
  worker.inbox.length = 0;
  const userInputs = [{ requestId: 'k2', elicitationId: 'approve', action: 0, fields: bytes({ n: 7 }) }];
  worker.invoke('k2', { act: 'ask_in_vain' }, { resume: { capsule, seq, attempt: 2, userInputs } });
  worker.send({ checkpointAck: { requestId: 'k2', seq: (await saved('k2')).seq } });
  assert.deepEqual(read((await worker.result('k2')).completed.output), { n: 7 });
});
