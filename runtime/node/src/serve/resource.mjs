//! ResourcePlugin over a `resource(...)` definition: list, read in pieces, subscribe. A piece is at most 64 KiB,
//! and the next one waits until the stream has room.
import { CallError } from '../errors.mjs';
import { MAX_PIECE_BYTES, textPieces } from '../wire/messages.mjs';
import { readArguments } from '../schema.mjs';
import { serveCompleting } from './completing.mjs';
import { serveAsking, serveRead } from './read.mjs';

/** The platform shows no more of a list. */
const MAX_LISTED = 1000;

/** Returns the handlers of ResourcePlugin's methods. */
export function resourceHandlers(served) {
  const found = ({ primitive }) => served.require(primitive, 'resource');
  return {
    List: async (request, { signal }) => {
      const { definition } = found(request);
      return serveRead(request, signal, (context) => list(definition, context));
    },
    Read: async (request, { signal, write }) => {
      const plugin = found(request);
      const { definition } = plugin;
      if (request.completing) return write({ completion: await serveCompleting(definition, request, signal) });
      const work = async (context) => ({ result: await read(definition, plugin, request, write, context) });
      const { asked } = await serveAsking(request, signal, work, plugin);
      if (asked) await write({ asked });
    },
    Subscribe: async (request, { signal, write }) => {
      const { definition } = found(request);
      return serveRead(request, signal, (context) => subscribe(definition, request, write, context));
    },
  };
}

async function list(definition, context) {
  const found = definition.list ? await definition.list(context) : [];
  const resources = [];
  for (const { uri, name, title, description, mimeType } of found) {
    if (resources.length >= MAX_LISTED) break;
    resources.push({ uri: String(uri), name: String(name ?? uri), title, description, mimeType });
  }
  return { resources };
}

async function read(definition, plugin, request, write, context) {
  const { uri, arguments: variables } = request;
  const args = readArguments(variables, plugin.schemas);
  const found = await definition.read(uri, args, context);
  let wasPlain = false;
  for await (const content of contents(found)) {
    const plain = isPlain(content);
    // Plain values in a row are one content that is given piece by piece.
    let starts = !(plain && wasPlain);
    for (const piece of pieces(content, uri)) {
      context.signal.throwIfAborted();
      await write({ ...piece, starts });
      starts = false;
    }
    wasPlain = plain;
  }
}

async function* contents(found) {
  const iterable = found !== null && typeof found === 'object' && !ArrayBuffer.isView(found);
  if (iterable && (found[Symbol.asyncIterator] || found[Symbol.iterator])) yield* found;
  else yield found;
}

function isPlain(content) {
  return typeof content === 'string' || ArrayBuffer.isView(content);
}

function* pieces(content, requested) {
  const given = isPlain(content) ? fromPlain(content) : (content ?? {});
  const { text, blob } = given;
  // Null is as good as absent.
  const [uri, mimeType] = [given.uri ?? requested, given.mimeType ?? ''];
  if ((text ?? blob) == null || (text != null && blob != null)) throw new TypeError('resource: give one of text and blob');
  if (text != null) {
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

async function subscribe(definition, request, write, context) {
  if (!definition.subscribe) throw new CallError('UNSUPPORTED', 'this resource cannot be subscribed to');
  const found = await definition.subscribe(request.uri, context);
  const changes = found[Symbol.asyncIterator]?.() ?? found[Symbol.iterator]();
  try {
    for (;;) {
      const { done, value } = await nextOrGone(changes, context.signal);
      if (done) return;
      await write({ uri: String(value ?? request.uri) });
    }
  } finally {
    Promise.resolve(changes.return?.()).catch(() => {});
  }
}

/** The next change; rejects when the caller goes, whatever the plugin waits for. */
function nextOrGone(changes, signal) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const gone = () => reject(signal.reason);
    signal.addEventListener('abort', gone, { once: true });
    Promise.resolve(changes.next())
      .then(resolve, reject)
      .finally(() => signal.removeEventListener('abort', gone));
  });
}
