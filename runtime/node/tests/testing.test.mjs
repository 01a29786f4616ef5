//! The context for unit tests: it keeps what a handler tells, answers what it asks, and ends it as a worker would.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isCancelled, tool, z } from '../src/index.mjs';
import { callTool, fakeContext } from '../src/testing.mjs';

test('it keeps what the handler tells', async () => {
  const ctx = fakeContext();
  ctx.progress(150, 'half', { rows: 2 });
  await ctx.chunk('text');
  await ctx.chunk({ row: 1 });
  ctx.log('warn', 'careful');
  ctx.log('emergency', 'storm');
  assert.throws(() => ctx.log('loud', 'x'), /unknown level LOUD; the levels are trace, debug, .*notice, warning, critical/);
  ctx.status('reading', { step: 1 });
  ctx.resourceChanged('x://a');
  ctx.elicitationCompleted('card');
  const uri = await ctx.artifact({ name: 'a.csv', type: 'csv', contentType: 'text/csv', description: 'A', data: 'x,y' });
  await ctx.artifact({ uri: 'https://example.com/a' });
  await ctx.checkpoint({ done: 1 });
  const { recorded } = ctx;
  assert.deepEqual(recorded.progress, [{ percent: 100, message: 'half', gauges: { rows: 2 } }]);
  assert.deepEqual(recorded.chunks, ['text', { row: 1 }]);
  assert.deepEqual(recorded.logs, [
    { level: 'warn', message: 'careful' },
    { level: 'emergency', message: 'storm' },
  ]);
  assert.deepEqual(recorded.statuses, [{ phase: 'reading', metadata: { step: 1 } }]);
  assert.deepEqual([uri, recorded.artifacts[0].data.toString(), recorded.artifacts[1].data], ['report://task-1/a.csv', 'x,y', undefined]);
  assert.deepEqual([recorded.changedResources, recorded.completedElicitations], [['x://a'], ['card']]);
  assert.deepEqual(recorded.checkpoints, [{ done: 1 }]);
});

test('questions and delegations get what the test gives', async () => {
  const answers = { unit: { unit: 'C' }, sure: 'decline', really: 'cancel' };
  const ctx = fakeContext({ answers, delegations: { judge: { text: 'fine' } } });
  assert.deepEqual(await ctx.elicit('unit', { message: 'Which?' }), { action: 'accept', fields: { unit: 'C' } });
  await ctx.elicit('unit', { url: 'https://pay.example.com/7' });
  assert.equal(ctx.recorded.questions.pop().url, 'https://pay.example.com/7');
  const conversation = { messages: [{ role: 'user' }], tools: [{ name: 'add' }] };
  await ctx.converse('judge', { ...conversation, toolChoice: 'auto' });
  assert.deepEqual(ctx.recorded.delegations.pop(), { id: 'judge', input: { ...conversation, toolChoice: { mode: 'auto' } } });
  assert.deepEqual(await ctx.elicit('sure'), { action: 'decline', fields: {} });
  assert.deepEqual(await ctx.elicit('really'), { action: 'cancel', fields: {} });
  assert.deepEqual(await ctx.delegate('judge', { n: 1 }), { text: 'fine' });
  assert.deepEqual(ctx.recorded.questions.map(({ id, message }) => [id, message]), [['unit', 'Which?'], ['sure', ''], ['really', '']]);
  assert.deepEqual(ctx.recorded.delegations, [{ id: 'judge', input: { n: 1 } }]);
});

for (const [name, act, code, reason] of [
  ['a question that expires', (ctx) => ctx.elicit('late'), 'INPUT_EXPIRED', 'expired'],
  ['a question that nobody can be asked', (ctx) => ctx.elicit('nobody'), 'INPUT_UNSUPPORTED', 'unsupported'],
  ['a question without an answer', (ctx) => ctx.elicit('other'), 'UNDECLARED', 'undeclared'],
  ['a delegate that fails', (ctx) => ctx.delegate('judge', 1), 'DELEGATION_FAILED', 'unavailable'],
  ['a delegate that fails in its own words', (ctx) => ctx.delegate('clerk', 1), 'DELEGATION_FAILED', 'failed'],
  ['a delegate without an answer', (ctx) => ctx.delegate('other', 1), 'UNDECLARED', 'undeclared'],
  ['a checkpoint that is too large', (ctx) => ctx.checkpoint('x'.repeat(70_000)), 'CHECKPOINT_FAILED', 'too_large'],
  ['a second artifact of a name', (ctx) => ctx.artifact({ name: 'a', data: '' }).then(() => ctx.artifact({ name: 'a', data: '' })), 'ARTIFACT_REFUSED', undefined],
]) {
  test(`${name} fails with the worker's code`, async () => {
    const ctx = fakeContext({ answers: { late: 'expired', nobody: 'unsupported' }, delegations: { judge: 'unavailable', clerk: 'failed: busy' } });
    await assert.rejects(act(ctx), { code, reason });
  });
}

test('a cancel and the deadline fire the signal, and the context throws', () => {
  for (const [stop, code] of [[(ctx) => ctx.cancel(), 'CANCELLED'], [(ctx) => ctx.expire(), 'DEADLINE']]) {
    const ctx = fakeContext();
    stop(ctx);
    assert.deepEqual([ctx.cancelled, ctx.signal.aborted, ctx.signal.reason.code], [true, true, code]);
    assert.throws(() => ctx.progress(1), { code });
  }
});

test('a soft cancel and a preemption end the handler at its next step', async () => {
  const soft = fakeContext({ answers: { unit: {} } });
  soft.cancel('soft');
  soft.progress(1);
  assert.deepEqual([soft.cancelled, soft.signal.aborted], [true, false]);
  await assert.rejects(soft.elicit('unit'), isCancelled);
  const preempted = fakeContext();
  preempted.cancel('preempt');
  assert.deepEqual([preempted.cancelled, preempted.preempted], [false, true]);
  await assert.rejects(preempted.checkpoint({ at: 1 }), isCancelled);
  assert.deepEqual(preempted.recorded.checkpoints, [{ at: 1 }]);
});

test('it has the facts that the test gives', () => {
  const ctx = fakeContext({ budget: 3, token: 'sesame', deadline: new Date(5), resume: { done: 2 }, caller: { tenant: 'me' } });
  assert.deepEqual([ctx.budget, String(ctx.token), ctx.token.reveal(), ctx.deadline.getTime()], [3, '***', 'sesame', 5]);
  assert.deepEqual([ctx.resume.state, ctx.resume.attempt, ctx.caller.tenant], [{ done: 2 }, 2, 'me']);
});

test('a typed tool is called as the worker calls it', async () => {
  const greet = tool({ input: z.object({ name: z.string().default('you') }), output: z.object({ text: z.string() }) }, ({ name }) => ({ text: name, more: 1 }));
  assert.deepEqual(await callTool(greet, {}, fakeContext()), { text: 'you' });
  await assert.rejects(callTool(greet, { name: 1 }, fakeContext()), { code: 'INVALID_ARGUMENT' });
});
