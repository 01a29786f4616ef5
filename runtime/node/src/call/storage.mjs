//! Keys and JSON values that outlive the call: those of the caller's org, or of its user. At most 16 requests of a call
//! wait for their answer; the others wait for a place, because a worker that exceeds the bound is ended.
import { CallError } from '../errors.mjs';
import { duration, json, parseJson } from '../wire/messages.mjs';

/** Requests of one call without an answer (proto/plugin.proto). */
const MAX_OPEN = 16;
/** A value as JSON text. */
const MAX_VALUE_BYTES = 64 * 1024;

export class StorageRequests {
  #open = new Map();
  #waiting = [];
  #sent = 0;

  /** Sends a request and returns the promise of its answer. */
  async ask(call, request, bytes) {
    while (this.#open.size >= MAX_OPEN) {
      await new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
    }
    call.check();
    this.#sent += 1;
    const correlationId = String(this.#sent);
    return new Promise((resolve, reject) => {
      this.#open.set(correlationId, { resolve, reject });
      call.out.send({ storageRequested: { requestId: call.requestId, correlationId, ...request } }, bytes);
    });
  }

  answer(answer) {
    const open = this.#open.get(answer.correlationId);
    this.#open.delete(answer.correlationId);
    open?.resolve(answer);
    this.#waiting.shift()?.resolve();
  }

  /** Ends every wait: nothing more is sent for the call. */
  refuseAll(error) {
    for (const { reject } of [...this.#open.values(), ...this.#waiting]) reject(error);
    this.#open.clear();
    this.#waiting = [];
  }
}

export function createStorage(call) {
  const ask = async (ofUser, operation, bytes = 0) => {
    call.check();
    const answer = await call.storage.ask(call, { ofUser, ...operation }, bytes);
    if (answer.error) throw refused(answer.error);
    return answer;
  };
  const getVersioned = async (key, { user = false } = {}) => {
    const { value, version } = await ask(user, { get: { key: String(key) } });
    return value === undefined ? undefined : Object.freeze({ value: parseJson(value), version });
  };
  return Object.freeze({
    getVersioned,
    async get(key, options) {
      return (await getVersioned(key, options))?.value;
    },
    async put(key, value, { ttlSeconds, user = false, ifVersion } = {}) {
      const text = json(value, 'the value');
      if (text.value.length > MAX_VALUE_BYTES) throw refused('too_large');
      const put = { key: String(key), value: text };
      if (ttlSeconds !== undefined) put.ttl = duration(notNegative(ttlSeconds, 'ttlSeconds'));
      if (ifVersion !== undefined) put.ifVersion = version(ifVersion);
      return (await ask(user, { put }, text.value.length)).version;
    },
    async list(prefix = '', { user = false } = {}) {
      const keys = [];
      for (;;) {
        const list = { prefix: String(prefix), after: keys.at(-1) ?? '' };
        const page = await ask(user, { list });
        keys.push(...page.keys);
        if (!page.hasMore || page.keys.length === 0) return keys;
      }
    },
    async delete(key, { user = false } = {}) {
      return (await ask(user, { delete: { key: String(key) } })).deleted;
    },
  });
}

function refused(reason) {
  return new CallError('STORAGE_FAILED', `storage: ${reason}`, { reason, details: { reason } });
}

function notNegative(value, name) {
  if (!(Number.isFinite(value) && value >= 0)) throw new TypeError(`put: ${name} must be a number of at least 0`);
  return value;
}

function version(value) {
  if (!(Number.isSafeInteger(value) && value >= 0)) throw new TypeError('put: ifVersion must be a version, or 0');
  return value;
}
