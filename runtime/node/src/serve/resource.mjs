//! ResourcePlugin over a `resource(...)` definition: list, read in pieces, subscribe. A piece is at most 64 KiB,
//! and the next one waits until the stream has room.
import { once } from 'node:events';
import { CallError } from '../errors.mjs';
import { MAX_PIECE_BYTES, textPieces } from '../wire/messages.mjs';
import { readArguments } from '../schema.mjs';
import { serveRead } from './read.mjs';

/** Resources of one list answer. */
const MAX_LISTED = 1000;

export function resourceMethods(definition, plugin) {
  return {
    List: (call, answer) => reply(answer, serveRead(call, (context) => list(definition, context))),
    Read: (call) => stream(call, (context) => read(definition, plugin, call, context)),
    Subscribe: (call) => stream(call, (context) => subscribe(definition, call, context)),
  };
}

/** Answers a unary call with what the promise gives. */
export function reply(answer, promise) {
  promise.then((value) => answer(null, value), (error) => answer(error));
}

function stream(call, work) {
  serveRead(call, work).then(() => call.end(), (error) => call.emit('error', error));
}

async function list(definition, context) {
  const found = definition.list ? await definition.list(context) : [];
  const resources = [];
  for (const { uri, name, title, description, mimeType } of found) {
    if (resources.length >= MAX_LISTED) throw new CallError('OVERLOAD', `more than ${MAX_LISTED} resources`);
    resources.push({ uri: String(uri), name: String(name ?? uri), title, description, mimeType });
  }
  return { resources };
}

async function read(definition, plugin, call, context) {
  const { uri, arguments: variables } = call.request;
  const args = readArguments(variables, plugin.schemas);
  const found = await definition.read(uri, args, context);
  for await (const content of contents(found)) {
    for (const piece of pieces(content, uri)) {
      context.signal.throwIfAborted();
      if (!call.write(piece)) await once(call, 'drain', { signal: context.signal });
    }
  }
}

async function* contents(found) {
  const iterable = found !== null && typeof found === 'object' && !ArrayBuffer.isView(found);
  if (iterable && (found[Symbol.asyncIterator] || found[Symbol.iterator])) yield* found;
  else yield found;
}

function* pieces(content, requested) {
  const plain = typeof content === 'string' || ArrayBuffer.isView(content);
  const { uri = requested, mimeType = '', text, blob } = plain ? fromPlain(content) : (content ?? {});
  if ((text === undefined) === (blob === undefined)) throw new TypeError('resource: give one of text and blob');
  if (text !== undefined) {
    for (const part of textPieces(String(text))) yield { uri, mimeType, text: part };
    return;
  }
  const bytes = Buffer.from(blob.buffer, blob.byteOffset, blob.byteLength);
  if (bytes.length === 0) yield { uri, mimeType, blob: bytes };
  for (let offset = 0; offset < bytes.length; offset += MAX_PIECE_BYTES) {
    yield { uri, mimeType, blob: Buffer.from(bytes.subarray(offset, offset + MAX_PIECE_BYTES)) };
  }
}

function fromPlain(content) {
  return typeof content === 'string' ? { text: content } : { blob: content };
}

async function subscribe(definition, call, context) {
  if (!definition.subscribe) throw new CallError('UNSUPPORTED', 'this resource cannot be subscribed to');
  for await (const changed of await definition.subscribe(call.request.uri, context)) {
    context.signal.throwIfAborted();
    const uri = String(changed ?? call.request.uri);
    if (!call.write({ uri })) await once(call, 'drain', { signal: context.signal });
  }
}
