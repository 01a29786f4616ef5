//! Protocol buffers (protobuf.dev/programming-guides/encoding) for the messages of plugin.json: plain objects in
//! and out. It is here because a library that reflects costs a third of a worker's start; a test compares it with
//! one. Reads every field it knows, skips what it does not, throws on what is no message. 64-bit numbers are
//! JavaScript's, exact up to 2^53; enums are their numbers. Types must not contain themselves.
import { Buffer } from 'node:buffer';

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

/** type → its wire type, its default and how it is read and written; `parts` collects what is written */
const SCALARS = {
  bool: { wire: VARINT, zero: false, read: (reader) => reader.varint() !== 0, write: (value, parts) => varint(value ? 1 : 0, parts) },
  enum: { wire: VARINT, zero: 0, read: (reader) => reader.varint() | 0, write: varint },
  int32: { wire: VARINT, zero: 0, read: (reader) => reader.varint() | 0, write: varint },
  uint32: { wire: VARINT, zero: 0, read: (reader) => reader.varint() >>> 0, write: varint },
  int64: { wire: VARINT, zero: 0, read: (reader) => reader.varint(), write: varint },
  uint64: { wire: VARINT, zero: 0, read: (reader) => reader.unsigned(), write: varint },
  double: { wire: FIXED64, zero: 0, read: (reader) => reader.double(), write: double },
  string: { wire: BYTES, zero: '', read: (reader) => reader.bytes().toString('utf8'), write: (value, parts) => bytes(Buffer.from(value, 'utf8'), parts) },
  bytes: { wire: BYTES, zero: Buffer.alloc(0), read: (reader) => reader.bytes(), write: bytes },
};

/** Returns `{encode(object) → Buffer, decode(Buffer) → object}` of each message of the descriptor, by name. */
export function codecs(descriptor) {
  const types = new Map(Object.entries(descriptor.messages).map(([name, fields]) => [name, new Type(fields)]));
  for (const type of types.values()) type.link(types);
  return types;
}

class Type {
  #fields;
  #byId;

  constructor(fields) {
    this.#fields = Object.entries(fields).map(([name, field]) => ({ name, ...field }));
    this.#byId = new Map(this.#fields.map((field) => [field.id, field]));
  }

  link(types) {
    for (const field of this.#fields) {
      const scalar = SCALARS[field.type];
      field.child = types.get(field.of);
      field.codec = scalar ?? { wire: BYTES, read: (reader) => field.child.decode(reader.bytes()), write: (value, parts) => nested(field.child, value, parts) };
      field.wire = field.rule === 'map' ? BYTES : field.codec.wire;
    }
  }

  encode(message) {
    const parts = [];
    this.write(message, parts);
    return Buffer.concat(parts);
  }

  /** Appends the fields that are there to `parts`. */
  write(message, parts) {
    for (const { name, id, wire, rule, codec } of this.#fields) {
      const value = message[name];
      if (value === undefined || value === null) continue;
      const tag = id * 8 + wire;
      if (rule === 'repeated') for (const one of value) put(tag, codec, one, parts);
      else if (rule === 'map') for (const entry of Object.entries(value)) put(tag, { write: writeEntry(codec) }, entry, parts);
      else put(tag, codec, value, parts);
    }
  }

  decode(buffer) {
    const message = this.#empty();
    const reader = new Reader(buffer);
    while (!reader.done) {
      const tag = reader.unsigned();
      const field = this.#byId.get(Math.floor(tag / 8));
      if (field === undefined) reader.skip(tag);
      else if (tag % 8 === field.wire) readField(field, reader, message);
      else throw new RangeError(`field ${field.name} has wire type ${tag % 8}`);
    }
    return message;
  }

  #empty() {
    const message = {};
    for (const { name, rule, oneof, codec } of this.#fields) {
      if (rule === 'repeated') message[name] = [];
      else if (rule === 'map') message[name] = Object.create(null);
      else if (rule !== 'optional' && oneof === undefined && codec.zero !== undefined) message[name] = codec.zero;
    }
    return message;
  }
}

function readField({ name, rule, oneof, codec }, reader, message) {
  if (rule === 'repeated') {
    message[name].push(codec.read(reader));
  } else if (rule === 'map') {
    const [key, value] = readEntry(codec, new Reader(reader.bytes()));
    message[name][key] = value;
  } else {
    // The last one of a oneof counts.
    if (oneof !== undefined && message[oneof] !== undefined) delete message[message[oneof]];
    message[name] = codec.read(reader);
    if (oneof !== undefined) message[oneof] = name;
  }
}

/** A map's entry is a message of key 1 and value 2. */
function readEntry(codec, reader) {
  let [key, value] = ['', codec.zero];
  while (!reader.done) {
    const tag = reader.unsigned();
    if (tag === 8 + BYTES) key = SCALARS.string.read(reader);
    else if (tag === 16 + codec.wire) value = codec.read(reader);
    else reader.skip(tag);
  }
  return [key, value];
}

const writeEntry = (codec) => ([key, value], parts) => {
  const entry = [];
  put(8 + BYTES, SCALARS.string, key, entry);
  put(16 + codec.wire, codec, value, entry);
  bytes(Buffer.concat(entry), parts);
};

function put(tag, codec, value, parts) {
  varint(tag, parts);
  codec.write(value, parts);
}

/** The length stands before the content: a place is kept for it. */
function nested(type, value, parts) {
  const place = parts.push(undefined) - 1;
  type.write(value, parts);
  let length = 0;
  for (let i = place + 1; i < parts.length; i += 1) length += parts[i].length;
  const head = [];
  varint(length, head);
  parts[place] = head[0];
}

function bytes(value, parts) {
  varint(value.length, parts);
  if (value.length > 0) parts.push(value);
}

function double(value, parts) {
  const eight = Buffer.allocUnsafe(8);
  eight.writeDoubleLE(value);
  parts.push(eight);
}

/** Every number below 128 is one byte, made once. */
const SMALL = Array.from({ length: 128 }, (_, value) => Buffer.from([value]));

function varint(value, parts) {
  if (!Number.isSafeInteger(value)) throw new RangeError(`not an integer: ${value}`);
  if (value >= 0 && value < 128) {
    parts.push(SMALL[value]);
    return;
  }
  const out = [];
  if (value < 0) {
    // 64 bits of two's complement.
    let rest = BigInt.asUintN(64, BigInt(value));
    for (; rest > 127n; rest >>= 7n) out.push(Number(rest & 127n) | 128);
    out.push(Number(rest));
  } else {
    let rest = value;
    for (; rest > 127; rest = Math.floor(rest / 128)) out.push((rest % 128) | 128);
    out.push(rest);
  }
  parts.push(Buffer.from(out));
}

class Reader {
  #buffer;
  #at = 0;

  constructor(buffer) {
    this.#buffer = buffer;
  }

  get done() {
    return this.#at >= this.#buffer.length;
  }

  /** A varint as a signed number of 64 bits. */
  varint() {
    return this.#varint((big) => Number(BigInt.asIntN(64, big)));
  }

  /** A varint as an unsigned number of 64 bits. */
  unsigned() {
    return this.#varint(Number);
  }

  double() {
    return this.#take(8).readDoubleLE(0);
  }

  bytes() {
    return this.#take(this.unsigned());
  }

  skip(tag) {
    const wire = tag % 8;
    if (tag < 8) throw new RangeError('a field without a number');
    if (wire === VARINT) this.unsigned();
    else if (wire === FIXED64) this.#take(8);
    else if (wire === BYTES) this.bytes();
    else if (wire === FIXED32) this.#take(4);
    else throw new RangeError(`wire type ${wire}`);
  }

  #take(length) {
    const end = this.#at + length;
    if (end > this.#buffer.length) throw new RangeError('a message ends within a field');
    const taken = this.#buffer.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }

  #varint(large) {
    let value = 0;
    for (let i = 0; i < 6; i += 1) {
      const byte = this.#byte();
      value += (byte & 127) * 2 ** (7 * i);
      if (byte < 128) return value;
    }
    let big = BigInt(value);
    for (let i = 6; i < 10; i += 1) {
      const byte = this.#byte();
      big += BigInt(byte & 127) << BigInt(7 * i);
      if (byte < 128) return large(BigInt.asUintN(64, big));
    }
    throw new RangeError('a number of more than 64 bits');
  }

  #byte() {
    const byte = this.#buffer[this.#at];
    if (byte === undefined) throw new RangeError('a message ends within a number');
    this.#at += 1;
    return byte;
  }
}
