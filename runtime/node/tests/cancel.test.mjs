//! How a call is stopped: hard, soft, preempted, by its deadline, by the end of the session.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { read, startWorker } from './harness.mjs';

const HARD = 0;
const SOFT = 1;
const PREEMPT = 2;

let worker;
before(async () => {
  worker = await (await startWorker('acts.mjs')).session();
});
after(() => worker.stop());

/** Starts an act and returns when it says that it waits. */
async function waiting(requestId, act, more) {
  worker.invoke(requestId, { act }, more);
  await worker.next(({ log }) => log?.requestId === requestId && log.message === 'waiting');
}

async function cancel(requestId, mode) {
  worker.send({ cancel: { requestId, mode, reason: 'the user changed his mind' } });
  await worker.next(({ cancel: answer }) => answer?.requestId === requestId && answer.accepted);
}

async function release(requestId) {
  worker.invoke(`release-${requestId}`, { act: 'release', id: requestId });
  await worker.result(`release-${requestId}`);
}

async function isAlive() {
  worker.send({ ping: { nonce: 'n' } });
  return worker.next(({ pong }) => pong?.nonce === 'n');
}

test('a hard cancel fires the signal and fails the call', async () => {
  await waiting('h1', 'wait');
  await cancel('h1', HARD);
  const { failed } = await worker.result('h1');
  assert.deepEqual([failed.code, failed.message, failed.yielded], ['CANCELLED', 'the user changed his mind', false]);
  await worker.printed('stopped h1 true');
});

test('a hard cancel refuses the open question', async () => {
  worker.invoke('h2', { act: 'elicit', id: 'approve' });
  await worker.next(({ elicitation }) => elicitation);
  await cancel('h2', HARD);
  assert.equal((await worker.result('h2')).failed.code, 'CANCELLED');
});

test('a call whose handler ignores the cancel is not reported as ended until it is', async () => {
  await waiting('i1', 'ignore');
  await cancel('i1', HARD);
  assert.ok(await isAlive());
  assert.ok(!worker.inbox.some((message) => message.failed || message.completed));
  await release('i1');
  assert.equal((await worker.result('i1')).failed.code, 'CANCELLED');
});

test('a cancelled call leaves the others alone', async () => {
  await waiting('o1', 'wait');
  await waiting('o2', 'ignore');
  await cancel('o1', HARD);
  await worker.result('o1');
  await release('o2');
  assert.deepEqual(read((await worker.result('o2')).completed.output), { ignored: true, cancelled: false, preempted: false });
});

test('a soft cancel stops a handler where it saves or asks', async () => {
  await waiting('s1', 'save_on');
  await cancel('s1', SOFT);
  await release('s1');
  assert.equal((await worker.result('s1')).failed.code, 'CANCELLED');
  assert.ok(!worker.stdout.includes('went on'));
});

test('what a handler returns after a soft cancel is its result', async () => {
  await waiting('s3', 'step_on');
  await cancel('s3', SOFT);
  await release('s3');
  assert.ok((await worker.result('s3')).completed);
  await worker.printed('signal false');
  await worker.printed('went on');
});

test('a handler that catches the end of its question still has a result, after a soft cancel only', async () => {
  for (const mode of [SOFT, HARD]) {
    worker.invoke(`c${mode}`, { act: 'catch_end' });
    await worker.next(({ elicitation }) => elicitation?.requestId === `c${mode}`);
    await cancel(`c${mode}`, mode);
  }
  assert.deepEqual(read((await worker.result(`c${SOFT}`)).completed.output), { partial: [true, true, false] });
  assert.equal((await worker.result(`c${HARD}`)).failed.code, 'CANCELLED');
});

test('a hard cancel after a soft one stops at once', async () => {
  await waiting('s2', 'wait');
  await cancel('s2', SOFT);
  assert.ok(!worker.inbox.some((message) => message.failed));
  await cancel('s2', HARD);
  assert.equal((await worker.result('s2')).failed.code, 'CANCELLED');
});

test('a preempted call yields when its checkpoint is stored', async () => {
  await waiting('p1', 'save_on');
  await cancel('p1', PREEMPT);
  await release('p1');
  const { seq } = await worker.next(({ checkpoint }) => checkpoint);
  assert.ok(!worker.inbox.some((message) => message.failed), 'it yielded before the checkpoint was stored');
  worker.send({ checkpointAck: { requestId: 'p1', seq } });
  const { failed } = await worker.result('p1');
  assert.deepEqual([failed.code, failed.yielded], ['CANCELLED', true]);
});

test('a preempted call that finishes first completes', async () => {
  await waiting('p2', 'ignore');
  await cancel('p2', PREEMPT);
  await release('p2');
  assert.deepEqual(read((await worker.result('p2')).completed.output), { ignored: true, cancelled: false, preempted: true });
});

test('a call that waits for an answer yields at once when it has a checkpoint', async () => {
  worker.invoke('p3', { act: 'ask_save_ask' }, {});
  await worker.next(({ elicitation }) => elicitation);
  await cancel('p3', PREEMPT);
  assert.ok(await isAlive());
  assert.ok(!worker.inbox.some((message) => message.failed), 'it yielded with nothing saved');
  worker.send({ userInput: { requestId: 'p3', elicitationId: 'approve', action: 0, fields: { value: Buffer.from('{"n":1}') } } });
  const { seq } = await worker.next(({ checkpoint }) => checkpoint);
  worker.send({ checkpointAck: { requestId: 'p3', seq } });
  assert.equal((await worker.result('p3')).failed.yielded, true);
});

test('a suspended call with a checkpoint is preempted without an answer', async () => {
  worker.invoke('p4', { act: 'ask_save_ask' });
  await worker.next(({ elicitation }) => elicitation);
  worker.send({ userInput: { requestId: 'p4', elicitationId: 'approve', action: 0, fields: { value: Buffer.from('{"n":1}') } } });
  const { seq } = await worker.next(({ checkpoint }) => checkpoint);
  worker.send({ checkpointAck: { requestId: 'p4', seq } });
  await worker.next(({ elicitation }) => elicitation);
  await cancel('p4', PREEMPT);
  assert.equal((await worker.result('p4')).failed.yielded, true);
});

test('the deadline fires the signal and fails the call', async () => {
  // Long enough for a busy machine to start the handler.
  const at = Date.now() + 1000;
  await waiting('t1', 'wait', { deadline: { seconds: Math.floor(at / 1000), nanos: (at % 1000) * 1e6 } });
  assert.equal((await worker.result('t1')).failed.code, 'DEADLINE');
  await worker.printed('stopped t1 true');
});

test('a call that comes after its deadline is not started', async () => {
  worker.invoke('t2', { act: 'wait' }, { deadline: { seconds: 1 } });
  assert.equal((await worker.result('t2')).failed.code, 'DEADLINE');
  assert.ok(!worker.inbox.some(({ log }) => log));
});

test('a cancel of a call that has ended is dropped', async () => {
  worker.invoke('x1', { act: 'echo' });
  await worker.result('x1');
  worker.send({ cancel: { requestId: 'x1' } });
  assert.ok(await isAlive());
  assert.ok(!worker.inbox.some((message) => message.cancel));
});

for (const [what, leave] of [
  ['the end of the session', (own) => own.stream.end()],
  ['the loss of the session', (own) => own.stream.cancel()],
  ['SIGTERM', (own) => own.process.kill('SIGTERM')],
]) {
  test(`${what} cancels what runs and the worker exits with 0`, async () => {
    const own = await (await startWorker('acts.mjs')).session();
    own.invoke('w', { act: 'wait' });
    await own.next(({ log }) => log);
    leave(own);
    assert.deepEqual(await own.ended, { code: 0, signal: null });
    assert.match(own.stdout, /stopped w true/);
  });
}

test('a handler that ignores everything cannot keep the worker', async () => {
  const own = await (await startWorker('acts.mjs')).session();
  own.invoke('w', { act: 'ignore' });
  await own.next(({ log }) => log);
  own.stream.end();
  assert.deepEqual(await own.ended, { code: 0, signal: null });
});

test('SIGTERM before a session ends the worker with 0', async () => {
  const own = await startWorker('acts.mjs');
  own.process.kill('SIGTERM');
  assert.deepEqual(await own.ended, { code: 0, signal: null });
});
