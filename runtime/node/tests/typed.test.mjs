//! A tool whose types are zod schemas, through the real worker process: what it says of itself, and how arguments and
//! results are converted.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import * as installed from 'zod';
import { describe } from '../src/describe.mjs';
import { tool, z } from '../src/index.mjs';
import { read, startWorker } from './harness.mjs';

let worker;
before(async () => {
  worker = await (await startWorker('forecast.mjs')).session();
});
after(() => worker.stop());

test('a worker says what its types are and its handler does not run', async () => {
  const { completed } = await worker.run({}, { describe: true, arguments: undefined });
  assert.equal(Buffer.from(completed.output.value).toString(), JSON.stringify({
    format: 1,
    inputSchema: {
      type: 'object',
      properties: {
        city: { type: 'string', minLength: 1, description: 'Where' },
        days: { default: 3, type: 'integer', minimum: 1, maximum: 14 },
        unit: { type: 'string', enum: ['C', 'F'] },
        near: {
          type: 'array',
          items: {
            type: 'object',
            properties: { name: { type: 'string' }, tags: { default: [], type: 'array', items: { type: 'string' } } },
            required: ['name'],
          },
        },
        even: { type: 'integer', minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER },
        act: { default: 'tell', type: 'string' },
      },
      required: ['city'],
      additionalProperties: false,
    },
    outputSchema: {
      type: 'object',
      properties: { text: { type: 'string' }, days: { type: 'number' }, note: { default: 'none', type: 'string' } },
      required: ['text', 'days', 'note'],
      additionalProperties: false,
    },
    artifactSchema: null,
  }));
  assert.ok(!worker.stdout.includes('the handler runs'));
  assert.ok(!worker.inbox.some(({ progress }) => progress));
});

test('defaults are filled in on both ways and what the output does not name is left out', async () => {
  const { completed } = await worker.run({ city: 'Oslo', near: [{ name: 'Moss' }] });
  assert.deepEqual(read(completed.output), { text: 'Oslo [{"name":"Moss","tags":[]}]', days: 3, note: 'none' });
});

for (const [args, pointer, words] of [
  [{}, '/city', /expected string, received undefined/],
  [{ city: 7 }, '/city', /expected string, received number/],
  [{ city: '' }, '/city', /Too small/],
  [{ city: 'x', days: 2.5 }, '/days', /expected int/],
  [{ city: 'x', days: '3' }, '/days', /expected number, received string/],
  [{ city: 'x', unit: 'K' }, '/unit', /"C"\|"F"/],
  [{ city: 'x', near: [{ name: 'y' }, { name: 1 }] }, '/near/1/name', /expected string/],
  [{ city: 'x', even: 3 }, '/even', /must be even/],
  [{ city: 'x', other: 1 }, '', /"other"/],
  [[], '', /expected object/],
]) {
  test(`arguments ${JSON.stringify(args)} are refused before the handler runs`, async () => {
    const { failed } = await worker.run(args);
    assert.equal(failed?.code, 'INVALID_ARGUMENT');
    assert.match(failed.message, words);
    assert.ok(failed.message.startsWith(`${pointer || '/'}: `), failed.message);
    assert.deepEqual(read(failed.details), { pointer });
  });
}

test('a result of another type is refused by the field', async () => {
  for (const [act, pointer] of [['wrong', '/text'], ['own_wrong', '/days'], ['nothing', '']]) {
    const { failed } = await worker.run({ city: 'x', act });
    assert.deepEqual([failed?.code, failed && read(failed.details)], ['INVALID_OUTPUT', { pointer }]);
  }
});

test('a result with content of its own is converted, and a failure that the model reads needs none', async () => {
  const { completed } = await worker.run({ city: 'x', act: 'own' });
  assert.deepEqual([read(completed.output), read(completed.content)[0].text], [{ text: 'own', days: 3, note: 'none' }, 'own']);
  for (const act of ['error', 'tool_error']) assert.equal((await worker.run({ city: 'x', act })).completed.isError, true);
});

test('a worker loads zod only for types, and no validator beside it', async () => {
  const schema = { type: 'object' };
  const schemas = { inputSchema: schema, outputSchema: schema };
  const untyped = await (await startWorker('acts.mjs', schemas)).session();
  untyped.invoke('l', { act: 'libraries' });
  const files = read((await untyped.result('l')).completed.output).files.join(' ');
  assert.deepEqual([/\/zod\//.test(files), /\/ajv\//.test(files)], [false, true]);
  await untyped.stop();
  const typed = await (await startWorker('forecast.mjs', schemas)).session();
  typed.invoke('l', { city: 'x', act: 'libraries' });
  const { text } = read((await typed.result('l')).completed.output);
  assert.deepEqual([/\/zod\//.test(text), /\/ajv\//.test(text)], [true, false]);
  await typed.stop();
});

test('a type that JSON does not know is named with its field and the way out', async () => {
  const dated = await (await startWorker('dated.mjs')).session();
  dated.invoke('d', {}, { describe: true });
  const { failed } = await dated.result('d');
  assert.equal(failed.code, 'SCHEMA');
  assert.match(failed.message, /^input\.trip\.legs\.\*\.on: date: .*write z\.iso\.datetime\(\)/);
  await dated.stop();
});

test('a plugin without types says nothing, of whatever kind it is', async () => {
  for (const [entrypoint, kind] of [['table.mjs', 'tool'], ['library.mjs', 'resource'], ['letter.mjs', 'prompt']]) {
    const untyped = await (await startWorker(entrypoint, { kind })).session();
    untyped.invoke('d', {}, { describe: true });
    const { completed } = await untyped.result('d');
    assert.deepEqual(read(completed.output), { format: 1, inputSchema: null, outputSchema: null, artifactSchema: null });
    await untyped.stop();
  }
});

const described = (types) => describe(tool(types, () => ({})));

test('schemas of a zod that the plugin brought are described with their texts', () => {
  assert.notEqual(installed.z.object, z.object);
  const { inputSchema } = described({ input: installed.z.object({ n: installed.z.number().describe('How many') }) });
  assert.deepEqual(inputSchema.properties, { n: { description: 'How many', type: 'number' } });
});

test('a type that holds itself and one with an id are referred to', () => {
  const Node = z.object({ name: z.string(), get children() { return z.array(Node); } });
  const { inputSchema } = described({ input: z.object({ root: Node.meta({ id: 'Node' }) }) });
  assert.deepEqual(inputSchema.properties.root, { $ref: '#/$defs/Node' });
  assert.ok(inputSchema.$defs.Node);
});

test('the same types give the same bytes', () => {
  const types = { input: z.object({ b: z.string(), a: z.union([z.string(), z.null()]) }), output: z.object({ z: z.number(), y: z.string() }) };
  assert.equal(JSON.stringify(described(types)), JSON.stringify(described(types)));
});

test('a default that is another each time is not in the schema and its field may be left out', () => {
  const input = z.object({
    key: z.string().default(() => crypto.randomUUID()).describe('Which'),
    at: z.number().default(() => Date.now()),
    inner: z.object({ default: z.string().prefault(() => crypto.randomUUID()) }).optional(),
    tags: z.array(z.string()).default(() => []),
  });
  const { inputSchema } = described({ input });
  assert.deepEqual(inputSchema, {
    type: 'object',
    properties: {
      key: { type: 'string', description: 'Which' },
      at: { type: 'number' },
      inner: { type: 'object', properties: { default: { type: 'string' } } },
      tags: { default: [], type: 'array', items: { type: 'string' } },
    },
  });
});

for (const [name, type, expected] of [
  ['anything', () => z.any(), null],
  ['several objects', () => z.union([z.object({ a: z.string() }), z.object({ b: z.string() })]), 'object'],
  ['any keys', () => z.record(z.string(), z.number()), 'object'],
]) {
  test(`a root of ${name} is ${expected}`, () => {
    assert.equal(described({ input: type() }).inputSchema?.type ?? null, expected);
  });
}

for (const [type, words] of [
  [() => z.string(), /^input: string is no object/],
  [() => z.object({ a: z.bigint() }), /^input\.a: bigint: .*write z\.int\(\)/],
  [() => z.object({ a: z.map(z.string(), z.string()) }), /^input\.a: map: .*write z\.record/],
  [() => z.object({ a: z.symbol() }), /^input\.a: symbol: .*write a type that JSON knows/],
]) {
  test(`a type without a schema is refused: ${words}`, () => {
    assert.throws(() => described({ input: type() }), (error) => error.code === 'SCHEMA' && words.test(error.message));
  });
}

test('what is no schema of zod 4 is refused when the plugin is loaded', () => {
  assert.throws(() => tool({ input: { city: 'string' } }, () => ({})), /tool\(\{input\}\) is no zod schema/);
  assert.throws(() => tool({ output: { _def: {} } }, () => ({})), /is of zod 3: install zod 4/);
  assert.throws(() => tool({ input: z.object({}) }), /needs a function/);
});
