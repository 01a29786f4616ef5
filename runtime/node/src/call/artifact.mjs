//! One artifact of a call: its name, its bytes in pieces with their digest, or a foreign URI. A name is used once
//! in a call; a file comes from the work directory; nothing is sent that the artifact schema refuses.
import { createHash } from 'node:crypto';
import { open, realpath } from 'node:fs/promises';
import { isAbsolute, relative, resolve } from 'node:path';
import { CallError } from '../errors.mjs';
import { MAX_PIECE_BYTES } from '../wire/messages.mjs';

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const ABSOLUTE_URI = /^[a-z][a-z0-9+.-]*:[^\s]{1,2048}$/i;

/**
 * Sends the artifact and returns its URI.
 * @param call gives requestId, taskId, artifactNames, limits, schemas, out, check()
 * @param spec {name, type, contentType, description} with one of data, file, uri
 */
export async function emitArtifact(call, spec) {
  const sources = ['data', 'file', 'uri'].filter((key) => spec?.[key] !== undefined);
  if (sources.length !== 1) throw new TypeError('artifact: give one of data, file and uri');
  const emitted = describe(call, spec);
  judge(call, spec, emitted);
  if (spec.uri === undefined) {
    reserve(call, spec.name);
    await call.out.room();
    Object.assign(emitted, await sendBytes(call, emitted.uri, pieces(call, spec)));
  }
  call.check();
  call.out.send({ artifact: emitted });
  return emitted.uri;
}

function describe(call, spec) {
  return {
    requestId: call.requestId,
    taskId: call.taskId,
    type: String(spec.type ?? 'file'),
    uri: spec.uri === undefined ? ownUri(call, spec.name) : foreignUri(spec.uri),
    contentType: String(spec.contentType ?? 'application/octet-stream'),
    description: String(spec.description ?? ''),
  };
}

function ownUri(call, name) {
  if (!NAME.test(String(name))) throw new TypeError('artifact: name must be letters, digits, ".", "_" or "-"');
  return `report://${encodeURIComponent(call.taskId || call.requestId)}/${name}`;
}

function foreignUri(uri) {
  if (!ABSOLUTE_URI.test(String(uri))) throw new TypeError('artifact: uri must be absolute');
  return String(uri);
}

function judge(call, spec, emitted) {
  const seen = { type: emitted.type, uri: emitted.uri, contentType: emitted.contentType };
  if (spec.description !== undefined) seen.description = emitted.description;
  const fault = call.schemas.artifact(seen);
  if (fault) throw new CallError('ARTIFACT_REFUSED', `artifact ${spec.name ?? emitted.uri}: ${fault.text}`);
}

/** The platform joins the pieces by URI, so a second artifact of the same name would corrupt the first. */
function reserve(call, name) {
  if (call.artifactNames.has(name)) throw new CallError('ARTIFACT_REFUSED', `artifact ${name} was sent already`);
  if (call.artifactNames.size >= call.limits.artifacts) {
    throw new CallError('ARTIFACT_REFUSED', `more than ${call.limits.artifacts} artifacts in a call`);
  }
  call.artifactNames.add(name);
}

async function* pieces(call, spec) {
  if (spec.file !== undefined) {
    yield* filePieces(call, spec);
    return;
  }
  const bytes = typeof spec.data === 'string' ? Buffer.from(spec.data, 'utf8') : asBuffer(spec.data);
  refuseTooLarge(call, spec.name, bytes.length);
  for (let offset = 0; offset < bytes.length; offset += MAX_PIECE_BYTES) {
    // A copy: the stream encodes it later, and the author may change the original meanwhile.
    yield Buffer.from(bytes.subarray(offset, offset + MAX_PIECE_BYTES));
  }
}

function asBuffer(data) {
  if (data instanceof ArrayBuffer) return Buffer.from(data);
  if (ArrayBuffer.isView(data)) return Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  throw new TypeError('artifact: data must be a string or bytes');
}

async function* filePieces(call, spec) {
  const directory = await realpath(call.workDirectory);
  const path = await realpath(resolve(directory, spec.file));
  const inside = relative(directory, path);
  if (inside.startsWith('..') || isAbsolute(inside)) throw new TypeError('artifact: file is outside the work directory');
  const file = await open(path, 'r');
  try {
    refuseTooLarge(call, spec.name, (await file.stat()).size);
    for (;;) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(MAX_PIECE_BYTES), 0, MAX_PIECE_BYTES, null);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

function refuseTooLarge(call, name, size) {
  if (size <= call.limits.artifactBytes) return;
  throw new CallError('ARTIFACT_REFUSED', `artifact ${name} has ${size} bytes, allowed are ${call.limits.artifactBytes}`);
}

async function sendBytes(call, uri, source) {
  const hash = createHash('sha256');
  let offset = 0;
  for await (const data of source) {
    // A file may grow while it is read.
    refuseTooLarge(call, uri, offset + data.length);
    await call.out.room();
    call.check();
    hash.update(data);
    call.out.send({ artifactData: { requestId: call.requestId, uri, offset, data } }, data.length);
    offset += data.length;
  }
  return { size: offset, sha256: hash.digest('hex') };
}
