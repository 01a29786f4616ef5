//! The way out of the Session stream, with a bound. What carries a result waits for room; progress keeps only
//! the newest of each call while there is none; log lines are dropped and counted.
import { CallError } from '../errors.mjs';
import { LOG_LEVELS } from '../wire/messages.mjs';

/** Messages and bytes that may wait in the stream before senders have to. */
const MAX_QUEUED = 256;
const MAX_QUEUED_BYTES = 4 * 1024 * 1024;
/** Senders that may wait: more means that a plugin does not await what it sends. */
const MAX_WAITING = 1024;
/** Bytes a message costs beside its payload. */
const OVERHEAD = 128;

export class Outgoing {
  #stream;
  #queued = 0;
  #queuedBytes = 0;
  #waiting = [];
  #latest = new Map();
  #dropped = 0;
  #closed = false;

  /** @param stream the GrpcCall of the Session */
  constructor(stream) {
    this.#stream = stream;
  }

  /** Sends at once: results, answers and questions, which are few and small or were waited for. */
  send(message, bytes = 0) {
    if (this.#closed) return;
    this.#queued += 1;
    this.#queuedBytes += bytes + OVERHEAD;
    this.#stream.write(message, () => {
      this.#queued -= 1;
      this.#queuedBytes -= bytes + OVERHEAD;
      this.#room();
    });
  }

  /** Resolves when there is room for more. */
  async room() {
    if (!this.#full() && this.#waiting.length === 0) return;
    if (this.#waiting.length >= MAX_WAITING) {
      throw new CallError('OVERLOADED', 'too many unsent messages: await chunk() and artifact()');
    }
    await new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Sends now, or when there is room if no newer one with this key has come by then. */
  sendLatest(key, message) {
    if (this.#full()) this.#latest.set(key, message);
    else this.send(message);
  }

  /** Sends what `sendLatest` still holds for the key: before the end of its call. */
  flushLatest(key) {
    const message = this.#latest.get(key);
    this.#latest.delete(key);
    if (message) this.send(message);
  }

  /** Sends a log line; drops it when there is no room. */
  sendLog(message, bytes) {
    if (this.#full()) {
      this.#dropped += 1;
      return;
    }
    if (this.#dropped > 0) {
      const { log } = message;
      const lost = `${this.#dropped} log lines were dropped`;
      this.#dropped = 0;
      this.send({ log: { ...log, level: LOG_LEVELS.WARN, severity: '', message: lost } });
    }
    this.send(message, bytes);
  }

  /** Ends the stream; nothing is sent after it. */
  close() {
    if (this.#closed) return;
    this.#closed = true;
    this.#stream.finish();
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #full() {
    return this.#queued >= MAX_QUEUED || this.#queuedBytes >= MAX_QUEUED_BYTES;
  }

  #room() {
    while (!this.#full() && this.#waiting.length > 0) this.#waiting.shift()();
    if (this.#full()) return;
    for (const key of [...this.#latest.keys()]) this.flushLatest(key);
  }
}
