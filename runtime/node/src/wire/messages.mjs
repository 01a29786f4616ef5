//! The protocol's messages, from the descriptor beside this file, and what every sender needs: JSON text within
//! the message bound, and timestamps.
import { readFileSync } from 'node:fs';
import { CallError } from '../errors.mjs';
import { codecs } from './codec.mjs';

/** A message on the wire (proto/plugin.proto). */
export const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;
/** What is left for JSON when ids and framing are taken off. */
const MAX_JSON_BYTES = MAX_MESSAGE_BYTES - 64 * 1024;
export const MAX_CAPSULE_BYTES = 64 * 1024;
export const MAX_LOG_BYTES = 16 * 1024;
export const MAX_PIECE_BYTES = 64 * 1024;

const PACKAGE = 'asp.plugin.v1';

const descriptor = JSON.parse(readFileSync(new URL('./plugin.json', import.meta.url), 'utf8'));
const types = codecs(descriptor);

/** level's name → its number */
export const LOG_LEVELS = descriptor.enums[`${PACKAGE}.LogLine.Level`];
/** MCP's levels that the wire's lack → the nearest of those */
const NEAREST = { NOTICE: 'INFO', WARNING: 'WARN', CRITICAL: 'ERROR', ALERT: 'ERROR', EMERGENCY: 'ERROR' };
export const LOG_LEVEL_NAMES = [...Object.keys(LOG_LEVELS), ...Object.keys(NEAREST)];

/** Returns the fields of a log line that state its level, by one of LOG_LEVEL_NAMES. */
export function logLevel(name) {
  if (!Object.hasOwn(NEAREST, name)) return { level: LOG_LEVELS[name] };
  return { level: LOG_LEVELS[NEAREST[name]], severity: name.toLowerCase() };
}

export const STATUS_WORKING = descriptor.enums[`${PACKAGE}.StatusUpdated.Status`].WORKING;
export const { SOFT, PREEMPT } = descriptor.enums[`${PACKAGE}.CancelRequest.Mode`];

/** Returns the methods of a service of the package: {name, path, request, response, requestStream, responseStream}. */
export function methods(service) {
  return Object.entries(descriptor.services[`${PACKAGE}.${service}`]).map(([name, method]) => ({
    ...method,
    name,
    path: `/${PACKAGE}.${service}/${name}`,
    request: types.get(method.request),
    response: types.get(method.response),
  }));
}

/** Returns a `Json` message; throws when the value is no JSON, or with `tooLarge` when it does not fit into one. */
export function json(value, what, tooLarge = 'TOO_LARGE') {
  const bytes = Buffer.from(stringify(value === undefined ? null : value, what), 'utf8');
  if (bytes.length > MAX_JSON_BYTES) {
    const remedy = tooLarge === 'INVALID_OUTPUT' ? '; keep it as an artifact (ctx.artifact)' : '';
    throw new CallError(tooLarge, `${what} has ${bytes.length} bytes of JSON, allowed are ${MAX_JSON_BYTES}${remedy}`);
  }
  return { value: bytes };
}

/** Returns the JSON text of a value; throws when there is none, also for NaN and infinities, which would become null. */
export function stringify(value, what) {
  let text;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    throw new CallError('INVALID_OUTPUT', `${what} is not JSON`, { cause });
  }
  if (text === undefined) throw new CallError('INVALID_OUTPUT', `${what} is not JSON, but a ${typeof value}`);
  // A second pass is slow, and most texts have no null.
  if (text.includes('null')) JSON.stringify(value, (_key, one) => finite(one, what));
  return text;
}

function finite(one, what) {
  if (typeof one === 'number' && !Number.isFinite(one)) {
    throw new CallError('INVALID_OUTPUT', `${what} holds ${one}, which JSON cannot say`);
  }
  return one;
}

/** Returns the value of a `Json` message, `undefined` when it is absent or empty. */
export function parseJson(message) {
  if (!message?.value?.length) return undefined;
  return JSON.parse(Buffer.from(message.value).toString('utf8'));
}

/** Returns now as a `Timestamp`. */
export function now() {
  const ms = Date.now();
  return { seconds: Math.floor(ms / 1000), nanos: (ms % 1000) * 1_000_000 };
}

/** Returns a `Timestamp` as milliseconds since 1970, `undefined` when absent. */
export function epochMs(timestamp) {
  if (!timestamp) return undefined;
  return timestamp.seconds * 1000 + Math.floor(timestamp.nanos / 1_000_000);
}

/** Returns seconds as a `Duration`. */
export function duration(seconds) {
  const whole = Math.floor(seconds);
  return { seconds: whole, nanos: Math.round((seconds - whole) * 1e9) };
}

/** Cuts a text to so many bytes of UTF-8, never within a character. */
export function truncate(text, bytes) {
  if (text.length * 3 <= bytes || Buffer.byteLength(text) <= bytes) return text;
  const cut = Buffer.from(text).subarray(0, bytes - 3).toString('utf8');
  return `${cut.replace(/\uFFFD+$/, '')}…`;
}

/** Cuts a long text into parts that are joined again, never within a character; an empty one is one part. */
export function textPieces(text) {
  if (text.length <= MAX_PIECE_BYTES) return [text];
  const pieces = [];
  for (let start = 0; start < text.length; ) {
    let end = Math.min(start + MAX_PIECE_BYTES, text.length);
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last <= 0xdbff) end -= 1;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
}
