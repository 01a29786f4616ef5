//! Resource and prompt plugins through the real worker process.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { status } from '@grpc/grpc-js';
import { read, startWorker } from './harness.mjs';

const bytes = (value) => ({ value: Buffer.from(JSON.stringify(value)) });
const CTX = { tenantId: 'acme', userId: 'alice' };

/** Collects a server stream: {messages, status}. */
function collect(stream) {
  const messages = [];
  stream.on('data', (message) => messages.push(message));
  stream.on('error', () => {});
  return new Promise((resolve) => stream.on('status', (end) => resolve({ messages, end })));
}

describe('a resource plugin', () => {
  let worker;
  let client;
  before(async () => {
    const inputSchema = { type: 'object', properties: { name: { type: 'string' } } };
    worker = await startWorker('library.mjs', { kind: 'resource_template', inputSchema });
    client = worker.client('ResourcePlugin');
    await worker.session();
  });
  after(() => worker.stop());

  const request = (name, more = {}) => ({ ctx: CTX, uri: `lib://${name}`, arguments: bytes({ name }), requestId: name, ...more });
  const readAll = (name, more) => collect(client.Read(request(name, more), worker.metadata()));

  test('reads a text in pieces that join to the whole', async () => {
    const { messages, end } = await readAll('text');
    assert.equal(end.code, status.OK);
    assert.ok(messages.length > 1);
    assert.ok(messages.every(({ uri, data }) => uri === 'lib://text' && data === 'text'));
    assert.equal(messages.map(({ text }) => text).join(''), 'é'.repeat(70_000));
  });

  test('reads bytes in pieces of at most 64 KiB', async () => {
    const { messages } = await readAll('bytes');
    assert.deepEqual(messages.map(({ blob }) => blob.length), [65_536, 34_464]);
  });

  test('reads several contents and an iterable', async () => {
    const two = (await readAll('two')).messages;
    assert.deepEqual(two.map(({ uri, mimeType, data }) => [uri, mimeType, data]), [
      ['lib://two#1', 'text/plain', 'text'], ['lib://two#2', 'application/octet-stream', 'blob'],
    ]);
    assert.equal((await readAll('lines')).messages.map(({ text }) => text).join(''), 'line 0\nline 1\nline 2\n');
  });

  test('takes null for an absent member', async () => {
    const { messages, end } = await readAll('nulls');
    assert.equal(end.code, status.OK, end.details);
    assert.deepEqual(messages.map(({ uri, mimeType, text }) => [uri, mimeType, text]), [['lib://nulls', '', 'n']]);
  });

  test('says where a content starts, also after one with the same URI', async () => {
    const starts = async (name) => (await readAll(name)).messages.map((piece) => piece.starts);
    const found = await starts('same');
    assert.deepEqual([found[0], found[1], found.slice(-3)], [true, false, [true, true, false]]);
  });

  test('answers what is absent, wrong or broken with its status and no stack', async () => {
    const absent = (await readAll('none')).end;
    assert.deepEqual([absent.code, absent.details], [status.NOT_FOUND, 'no such book: none']);
    assert.equal((await readAll('x', { arguments: bytes({ name: 1 }) })).end.code, status.INVALID_ARGUMENT);
    const broken = (await readAll('bad')).end;
    assert.deepEqual([broken.code, broken.details], [status.INTERNAL, 'the plugin failed; its log says why']);
  });

  test('stops when the caller goes and when the deadline passes', async () => {
    const stream = client.Read(request('wait'), worker.metadata());
    const gone = collect(stream);
    stream.on('metadata', () => {});
    const at = Date.now() + 50;
    const late = await readAll('wait', { deadline: { seconds: Math.floor(at / 1000), nanos: (at % 1000) * 1e6 } });
    assert.equal(late.end.code, status.DEADLINE_EXCEEDED);
    stream.cancel();
    await gone;
    await worker.printed('aborted CANCELLED');
  });

  test('completes a variable, whatever the others are', async () => {
    const asked = { ctx: CTX, completing: 'shelf', arguments: bytes({ shelf: 'no', name: 1 }), requestId: 'c' };
    const { messages, end } = await collect(client.Read(asked, worker.metadata()));
    assert.equal(end.code, status.OK);
    const { values, total, hasMore } = messages[0].completion;
    assert.deepEqual([values, total, hasMore], [['shelf no {"name":1}'], 1, false]);
  });

  test('lists and tells of changes until the caller goes', async () => {
    const listed = await new Promise((resolve, reject) => {
      client.List({ ctx: CTX }, worker.metadata(), (error, answer) => (error ? reject(error) : resolve(answer)));
    });
    assert.deepEqual([listed.resources[0].uri, listed.resources[0].title], ['lib://a', 'acme']);
    const stream = client.Subscribe({ uri: 'lib://a' }, worker.metadata());
    stream.on('error', () => {});
    const seen = [];
    for await (const { uri } of stream) {
      seen.push(uri);
      if (seen.length === 2) break;
    }
    assert.deepEqual(seen, ['lib://a', 'lib://a/child']);
  });

  test('does not wait for a plugin that waits for changes whoever has left', async () => {
    const stream = client.Subscribe({ uri: 'lib://deaf' }, worker.metadata());
    stream.on('error', () => {});
    for await (const { uri } of stream) {
      assert.equal(uri, 'lib://deaf');
      break;
    }
    stream.cancel();
    await worker.printed('let go');
  });

  test('asks for the token', async () => {
    const { end } = await collect(client.Read(request('text'), worker.metadata(null)));
    assert.equal(end.code, status.UNAUTHENTICATED);
  });
});

describe('a prompt plugin', () => {
  let worker;
  let client;
  before(async () => {
    const inputSchema = { type: 'object', required: ['name'] };
    worker = await startWorker('letter.mjs', { kind: 'prompt', inputSchema });
    client = worker.client('PromptPlugin');
  });
  after(() => worker.stop());

  const get = (args) => new Promise((resolve) => {
    client.Get({ ctx: CTX, name: 'letter', arguments: bytes(args) }, worker.metadata(), (error, answer) => resolve({ error, answer }));
  });

  test('returns messages, or a text as one user message', async () => {
    const { answer } = await get({ name: 'Bob' });
    assert.equal(answer.description, 'A letter');
    assert.deepEqual(answer.messages.map(({ role, content }) => [role, read(content).type]), [['user', 'text'], ['assistant', 'image']]);
    assert.equal((await get({ name: 'Bob', shape: 'null' })).answer.description, '');
    const text = (await get({ name: 'Bob', shape: 'text' })).answer.messages;
    assert.deepEqual(text.map(({ role, content }) => [role, read(content)]), [['user', { type: 'text', text: 'Write to Bob' }]]);
  });

  test('refuses wrong arguments and reports a broken answer as internal', async () => {
    assert.equal((await get({})).error.code, status.INVALID_ARGUMENT);
    assert.equal((await get({ name: 'Bob', shape: 'bad' })).error.code, status.INTERNAL);
  });

  test('completes an argument with at most a hundred values', async () => {
    const complete = (completing) => new Promise((resolve) => {
      client.Get({ ctx: CTX, completing, arguments: bytes({ [completing]: 'B' }) }, worker.metadata(), (error, answer) => resolve({ error, answer }));
    });
    const { values, total, hasMore } = (await complete('name')).answer.completion;
    assert.deepEqual([values.length, values[99], total, hasMore], [100, 'B-99', 101, true]);
    assert.equal((await complete('shape')).error.code, status.INTERNAL);
  });

  test('lists its prompts', async () => {
    const listed = await new Promise((resolve) => client.List({}, worker.metadata(), (_error, answer) => resolve(answer)));
    assert.deepEqual({ ...listed.prompts[0] }, { name: 'letter', title: 'Letter', description: 'Writes a letter' });
  });
});
