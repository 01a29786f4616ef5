//! A package with several primitives: each call reaches its own definition, with its own schemas and questions.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { read, startWorker } from './harness.mjs';

const TOOL = { version: '1.0.0', kind: 'tool' };
const CITY = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const PACKAGE = {
  id: 'weather', kind: undefined, elicitations: undefined, delegations: undefined,
  primitives: {
    forecast: { ...TOOL, entrypoint: 'several.mjs', inputSchema: CITY },
    list_orders: { ...TOOL, kind: 'task', entrypoint: 'several.mjs', elicitations: ['region'] },
    more: { ...TOOL, entrypoint: 'several/more.mjs' },
    stations: { ...TOOL, kind: 'resource_template', entrypoint: 'several.mjs' },
    areas: { ...TOOL, kind: 'resource_template', entrypoint: 'several.mjs:areas' },
    letter: { ...TOOL, kind: 'prompt', entrypoint: 'several.mjs' },
  },
};

const start = () => startWorker(undefined, PACKAGE);

/** Calls a method with one request and one response. */
function call(worker, service, method, request) {
  return new Promise((resolve, reject) => {
    worker.client(service)[method](request, worker.metadata(), (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

const lists = async (worker, primitive) => {
  const { resources } = await call(worker, 'ResourcePlugin', 'List', { ctx: {}, requestId: 'l', primitive });
  return resources.map(({ uri }) => uri);
};

test('each call reaches the definition of its primitive, and code is loaded once', async () => {
  const worker = await (await start()).session();
  const { completed } = await worker.run({ city: 'Oslo' }, { primitive: 'forecast' });
  assert.deepEqual(read(completed.output), { city: 'Oslo', loads: ['several', 'more'] });
  assert.equal((await worker.run({}, { primitive: 'forecast' })).failed.code, 'INVALID_ARGUMENT');
  assert.deepEqual(read((await worker.run({}, { primitive: 'more' })).completed.output), { more: true });
  const asking = worker.start({}, { primitive: 'list_orders' });
  const { elicitationId } = await worker.next((message) => message.elicitation);
  assert.equal(elicitationId, 'region');
  worker.send({ cancel: { requestId: asking } });
  assert.equal((await worker.result(asking)).failed.code, 'CANCELLED');
  await worker.stop();
});

test('resources and prompts of one package are told apart', async () => {
  const worker = await (await start()).session();
  assert.deepEqual(await lists(worker, 'stations'), ['station://1']);
  assert.deepEqual(await lists(worker, 'areas'), ['area://n']);
  const request = { ctx: {}, name: 'letter', requestId: 'p', arguments: { value: Buffer.from('{"name": "Ada"}') } };
  const { messages } = await call(worker, 'PromptPlugin', 'Get', request);
  assert.deepEqual(read(messages[0].content), { type: 'text', text: 'Dear Ada' });
  await worker.stop();
});

test('a primitive that the package does not serve is refused, and resuming is said of those that do', async () => {
  const worker = await start();
  worker.open();
  worker.send({ init: { ctx: {}, env: {} } });
  const { caps } = await worker.next((message) => message.init);
  assert.equal(caps.checkpoint, 'of list_orders');
  const { failed } = await worker.run({}, { primitive: 'radar' });
  assert.deepEqual([failed.code, failed.message], ['UNSUPPORTED', 'the package does not serve the tool radar']);
  assert.equal((await worker.run({}, { primitive: 'stations' })).failed.code, 'UNSUPPORTED');
  await assert.rejects(lists(worker, 'radar'), /does not serve the resource radar/);
  await worker.stop();
});
