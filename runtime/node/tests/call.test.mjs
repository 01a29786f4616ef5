//! A call through the real worker process: what the handler is given, what it may tell, and how it ends.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, test } from 'node:test';
import { read, startWorker } from './harness.mjs';

let worker;
before(async () => {
  worker = await (await startWorker('acts.mjs')).session();
});
after(() => worker.stop());

test('a result comes back as the output', async () => {
  const { completed } = await worker.run({ act: 'echo', value: { deep: [1, 'é', null] } });
  assert.deepEqual(read(completed.output), { echo: { deep: [1, 'é', null] } });
  assert.equal(completed.isError, false);
});

test('a handler that returns nothing completes with null', async () => {
  assert.equal(read((await worker.run({ act: 'nothing' })).completed.output), null);
});

test('the context holds the facts of the call and its token prints as stars', async () => {
  const seconds = Math.floor(Date.now() / 1000) + 60;
  const { completed } = await worker.run(
    { act: 'facts' },
    { deadline: { seconds, nanos: 5e8 }, budget: 7, accessToken: 'sesame', idempotencyKey: 'k', attrs: { traceparent: 'tp' } },
  );
  const facts = read(completed.output);
  assert.deepEqual(facts.caller, { tenant: 'acme', user: 'alice', session: 's1' });
  assert.equal(facts.deadline, new Date(seconds * 1000 + 500).toISOString());
  assert.equal(facts.taskId, `T-${facts.requestId}`);
  assert.equal(facts.budget, 7);
  assert.deepEqual([facts.token, facts.json, facts.revealed], ['***', '"***"', 'sesame']);
  assert.deepEqual([facts.key, facts.attrs.traceparent, facts.resume], ['k', 'tp', null]);
});

test('a budget that is absent is undefined and one of zero is zero', async () => {
  assert.equal(read((await worker.run({ act: 'facts' })).completed.output).budget, undefined);
  assert.equal(read((await worker.run({ act: 'facts' }, { budget: 0 })).completed.output).budget, 0);
});

test('progress arrives in order before the result', async () => {
  await worker.run({ act: 'progress', to: 50 });
  const seen = worker.inbox.filter((message) => message.progress).map((message) => message.progress);
  assert.deepEqual(seen.map((progress) => progress.percent), Array.from({ length: 51 }, (_, n) => n));
  assert.deepEqual({ ...seen[3].gauges }, { percent: 3 });
  assert.equal(seen[3].message, 'step 3');
  const { status } = worker.inbox.find((message) => message.status);
  assert.deepEqual([status.status, status.phase, read(status.metadata)], [1, 'counted', { to: 50 }]);
  worker.inbox.length = 0;
});

test('a burst of progress keeps the newest and does not grow without bound', async () => {
  await worker.run({ act: 'progress', to: 100_000 });
  const seen = worker.inbox.filter((message) => message.progress).map((message) => message.progress);
  assert.equal(seen.at(-1).message, 'step 100000');
  assert.ok(seen.length < 1000, `${seen.length} messages were sent`);
  worker.inbox.length = 0;
});

test('chunks keep their order and long text is cut between characters', async () => {
  await worker.run({ act: 'chunks', length: 100_001 });
  const seen = worker.inbox.filter((message) => message.chunk).map((message) => message.chunk);
  assert.deepEqual(read(seen[1].structured), { row: 1 });
  assert.equal(seen.map((chunk) => chunk.text).join(''), `text ${'é'.repeat(100_001)}`);
  worker.inbox.length = 0;
});

function artifactOf() {
  const pieces = worker.inbox.filter((message) => message.artifactData).map((message) => message.artifactData);
  const { artifact } = worker.inbox.find((message) => message.artifact);
  worker.inbox.length = 0;
  return { pieces, artifact };
}

test('artifact bytes come in pieces without gaps and with their digest', async () => {
  const { completed } = await worker.run({ act: 'artifact', name: 'rows.csv', size: 150_000 });
  const { pieces, artifact } = artifactOf();
  assert.equal(read(completed.output).uri, `report://T-${completed.requestId}/rows.csv`);
  assert.deepEqual(pieces.map((piece) => [Number(piece.offset), piece.data.length]), [[0, 65536], [65536, 65536], [131072, 18928]]);
  const bytes = Buffer.concat(pieces.map((piece) => piece.data));
  assert.equal(artifact.sha256, createHash('sha256').update(bytes).digest('hex'));
  assert.deepEqual([Number(artifact.size), artifact.type, artifact.contentType], [150_000, 'csv', 'text/csv']);
});

test('an artifact may be a file of the work directory', async () => {
  await worker.run({ act: 'file', size: 100_000 });
  const { pieces, artifact } = artifactOf();
  assert.deepEqual(Buffer.concat(pieces.map((piece) => piece.data)), Buffer.alloc(100_000, 7));
  assert.equal(Number(artifact.size), 100_000);
});

test('an empty artifact is announced without pieces', async () => {
  await worker.run({ act: 'artifact', name: 'empty', size: 0 });
  const { pieces, artifact } = artifactOf();
  assert.equal(pieces.length, 0);
  assert.equal(artifact.sha256, createHash('sha256').digest('hex'));
});

test('an artifact may be a foreign address', async () => {
  await worker.run({ act: 'link', uri: 'https://reports.example/1' });
  const { pieces, artifact } = artifactOf();
  assert.deepEqual([pieces.length, artifact.uri, Number(artifact.size), artifact.sha256], [0, 'https://reports.example/1', 0, '']);
});

test('an artifact above the disk limit is refused before any byte is sent', async () => {
  for (const act of [{ act: 'artifact', name: 'a', size: 1024 * 1024 + 1 }, { act: 'file', size: 1024 * 1024 + 1 }]) {
    const { failed } = await worker.run(act);
    assert.equal(failed.code, 'ARTIFACT_REFUSED');
    assert.match(failed.message, /1048577 bytes, allowed are 1048576/);
    assert.equal(worker.inbox.length, 0);
  }
});

test('an artifact outside the work directory, without a plain name or sent twice is refused', async () => {
  for (const act of [
    { act: 'file', size: 1, path: '../plugin.json' },
    { act: 'artifact', name: '../x', size: 1 },
    { act: 'link', uri: 'not an address' },
    { act: 'twice' },
  ]) {
    const { failed } = await worker.run(act);
    assert.ok(['INTERNAL', 'ARTIFACT_REFUSED'].includes(failed.code), failed.code);
    worker.inbox.length = 0;
  }
});

test('log and console become log lines of the call and stdout stays stdout', async () => {
  await worker.run({ act: 'log' });
  const lines = worker.inbox.filter((message) => message.log).map(({ log }) => [log.level, log.severity, log.message]);
  assert.deepEqual(lines, [
    [3, '', 'from log'],
    [2, 'notice', 'from log'],
    [4, 'emergency', 'from log'],
    [2, '', 'from console { a: 1 }'],
    [4, '', 'from\nerror'],
  ]);
  await worker.printed('from stdout\n');
  assert.ok(!worker.stdout.includes('from console'));
  worker.inbox.length = 0;
});

test('an exception fails the call without telling the caller what it was', async () => {
  const { failed } = await worker.run({ act: 'fail' });
  assert.deepEqual([failed.code, failed.message, failed.details], ['INTERNAL', 'the plugin failed; its log says why', null]);
  await worker.printed('secret detail', 'stderr');
});

test('an error of the plugin keeps its code, message and details', async () => {
  const { failed } = await worker.run({ act: 'own' });
  assert.deepEqual([failed.code, failed.message, read(failed.details)], ['NO_SUCH_CITY', 'there is no such city', { city: 'X' }]);
});

test('a tool error completes with a text the model reads', async () => {
  const { completed } = await worker.run({ act: 'tool_error' });
  assert.equal(completed.isError, true);
  assert.equal(completed.output, null);
  assert.deepEqual(read(completed.content), [{ type: 'text', text: 'try another city' }]);
});

test('a result may bring content blocks and _meta of its own', async () => {
  const { completed } = await worker.run({ act: 'blocks' });
  assert.deepEqual([read(completed.output), read(completed.content)], [{ ok: true }, [{ type: 'text', text: 'ok' }]]);
  assert.deepEqual(read(completed.meta), { 'example.org/n': 1 });
});

test('a result that is too large or no JSON is an invalid output', async () => {
  assert.match((await worker.run({ act: 'huge' })).failed.message, /the result has \d+ bytes of JSON, allowed are \d+; keep it as an artifact/);
  assert.equal((await worker.run({ act: 'cyclic' })).failed.code, 'INVALID_OUTPUT');
});

test('what a handler does after its end is dropped', async () => {
  await worker.run({ act: 'late' });
  await worker.printed('late CANCELLED');
  const { completed } = await worker.run({ act: 'echo' });
  assert.ok(completed);
  assert.ok(!worker.inbox.some((message) => message.log || message.progress));
});

test('files outside the package, the shim and the work directory cannot be read', async () => {
  const { failed } = await worker.run({ act: 'passwd' });
  assert.equal(failed.code, 'INTERNAL');
  await worker.printed('Access to this API has been restricted', 'stderr');
});
