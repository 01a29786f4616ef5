//! The codec against protobufjs, message by message, and what both it and the framing refuse.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { protocol } from '../scripts/generate.mjs';
import { writeCapsule } from '../src/call/capsule.mjs';
import { codecs } from '../src/wire/codec.mjs';
import { FrameReader, frame } from '../src/wire/frames.mjs';
import { json } from '../src/wire/messages.mjs';

const descriptor = JSON.parse(readFileSync(new URL('../src/wire/plugin.json', import.meta.url), 'utf8'));
const own = codecs(descriptor);
const oracle = protocol();

const VALUES = {
  bool: [true, false],
  enum: [0, 1, 2],
  int32: [0, 1, -1, 2 ** 31 - 1, -(2 ** 31)],
  uint32: [0, 127, 128, 2 ** 32 - 1],
  int64: [0, -1, 300, 2 ** 53 - 1, -(2 ** 53 - 1)],
  uint64: [0, 127, 128, 16_384, 2 ** 42, 2 ** 53 - 1],
  double: [0, -1.5, 1e300],
  string: ['', 'é€😀', 'x'.repeat(300)],
  bytes: [Buffer.alloc(0), Buffer.from([0, 255]), Buffer.alloc(70_000, 7)],
};

/** Returns the nth sample of a message: every field there, one field of each oneof. */
function sample(name, n) {
  const message = {};
  const chosen = new Map();
  for (const [field, { type, of, rule, oneof }] of Object.entries(descriptor.messages[name])) {
    if (oneof !== undefined) chosen.set(oneof, [...(chosen.get(oneof) ?? []), field]);
    const value = () => (type === 'message' ? sample(of, n) : VALUES[type][n % VALUES[type].length]);
    if (rule === 'repeated') message[field] = Array.from({ length: n % 3 }, value);
    else if (rule === 'map') message[field] = n % 2 === 0 ? {} : { a: value(), ['é']: value() };
    else message[field] = value();
  }
  for (const fields of chosen.values()) for (const field of fields) if (field !== fields[n % fields.length]) delete message[field];
  return message;
}

/** What both sides say of a message, in the same words: numbers, absent fields left out. */
function plain(name, message) {
  const type = oracle.lookupType(name);
  return type.toObject(type.fromObject(message), { longs: Number, defaults: true, bytes: String });
}

/** Without the name of the field that is set, which only a reader has. */
function withoutOneofs(message) {
  if (Array.isArray(message)) return message.map(withoutOneofs);
  if (message === null || typeof message !== 'object' || Buffer.isBuffer(message)) return message;
  const { payload: _payload, ...rest } = message;
  return Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, withoutOneofs(value)]));
}

for (const name of Object.keys(descriptor.messages)) {
  test(`${name} is written and read as protobufjs does`, () => {
    const type = oracle.lookupType(name);
    for (let n = 0; n < 30; n += 1) {
      const message = sample(name, n);
      const read = withoutOneofs(own.get(name).decode(Buffer.from(type.encode(type.fromObject(message)).finish())));
      // ContentChunk's oneof is called as one of no other message's fields is.
      if (name.endsWith('ContentChunk')) delete read.data;
      assert.deepEqual(plain(name, read), plain(name, message));
      const written = type.decode(own.get(name).encode(message));
      assert.deepEqual(type.toObject(written, { longs: Number, defaults: true, bytes: String }), plain(name, message));
    }
  });
}

test('what is absent reads as its default, and an absent optional field as undefined', () => {
  const invoke = own.get('asp.plugin.v1.InvokeRequest').decode(Buffer.alloc(0));
  assert.deepEqual([invoke.requestId, invoke.budget, invoke.deadline, { ...invoke.attrs }], ['', undefined, undefined, {}]);
  assert.equal(own.get('asp.plugin.v1.ClientMessage').decode(Buffer.alloc(0)).payload, undefined);
});

test('the last field of a oneof counts and unknown fields are skipped', () => {
  const client = own.get('asp.plugin.v1.ClientMessage');
  const both = Buffer.concat([client.encode({ ping: { nonce: '1' } }), Buffer.from([0xf8, 0x3f, 1, 0xfa, 0x3f, 1, 9]), client.encode({ cancel: { requestId: 'r' } })]);
  const message = client.decode(both);
  assert.deepEqual([message.payload, message.ping, message.cancel.requestId], ['cancel', undefined, 'r']);
});

test('a map key that names a prototype is a key', () => {
  const init = own.get('asp.plugin.v1.InitRequest');
  const { env } = init.decode(init.encode({ env: { ['__proto__']: 'x', constructor: 'y' } }));
  assert.deepEqual(Object.keys(env).sort(), ['__proto__', 'constructor']);
  assert.equal({}.x, undefined);
});

test('what is no message throws', () => {
  const ping = own.get('asp.plugin.v1.Ping');
  for (const bytes of [[0x0a], [0x0a, 5, 1], [0x08, 1], [0x0b], [0x0c], [0x0f], [0x00, 1], [0x80], [0x10, ...Array(10).fill(0xff), 1], [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]]) {
    assert.throws(() => ping.decode(Buffer.from(bytes)), RangeError, String(bytes));
  }
  assert.throws(() => own.get('asp.plugin.v1.LogLine').encode({ level: 'WARN' }), RangeError);
});

test('random bytes are read or refused, and never anything else', () => {
  let seed = 1;
  const random = () => (seed = (seed * 48_271) % 2_147_483_647);
  for (let n = 0; n < 20_000; n += 1) {
    const bytes = Buffer.from(Array.from({ length: random() % 24 }, () => random() % 256));
    try {
      own.get('asp.plugin.v1.ClientMessage').decode(bytes);
    } catch (error) {
      assert.ok(error instanceof RangeError, error.stack);
    }
  }
});

test('frames come whole however they are cut', () => {
  const messages = [Buffer.from('one'), Buffer.alloc(0), Buffer.alloc(1000, 3)];
  const stream = Buffer.concat(messages.map(frame));
  for (const size of [1, 2, 5, 7, 500, stream.length]) {
    const reader = new FrameReader(1000);
    const found = [];
    for (let at = 0; at < stream.length; at += size) found.push(...reader.push(stream.subarray(at, at + size)));
    assert.deepEqual(found, messages);
    assert.equal(reader.partial, false);
  }
});

test('an oversize or compressed frame is refused by its head', () => {
  assert.throws(() => new FrameReader(10).push(Buffer.from([0, 0, 0, 0, 11])), { code: 8 });
  assert.throws(() => new FrameReader(10).push(Buffer.from([1, 0, 0, 0, 1])), { code: 12 });
  const reader = new FrameReader(10);
  assert.deepEqual(reader.push(Buffer.from([0, 0, 0, 0, 10])), []);
  assert.equal(reader.partial, true);
});

test('a number that JSON cannot say is refused and not sent as null', () => {
  for (const number of [NaN, Infinity, -Infinity]) {
    const fault = { code: 'INVALID_OUTPUT', message: `the result holds ${number}, which JSON cannot say` };
    for (const value of [number, { a: [1, { b: number }] }]) assert.throws(() => json(value, 'the result'), fault);
    assert.throws(() => writeCapsule({ best: number }, new Map()), /the checkpoint holds/);
  }
  const value = { a: null, b: undefined, c: 'null', d: [undefined], e: new Date(0) };
  assert.equal(json(value, 'the result').value.toString(), JSON.stringify(value));
  assert.equal(json(undefined, 'the result').value.toString(), 'null');
});
