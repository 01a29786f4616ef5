//! A storage in memory for unit tests, in place of the platform's: with its bounds, its order and its words.

const MAX_KEY = 256;
const MAX_VALUE = 64 * 1024;
const MAX_KEYS = 1000;
const MAX_BYTES = 4 * 1024 * 1024;
const PAGE = 100;
const DEFAULT_TTL = 30 * 24 * 3600;
const MAX_TTL = 90 * 24 * 3600;
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/u;

/** What one plugin keeps. Give it to the contexts of several calls to test what one call leaves to the next. */
export class FakeStorage {
  /** A word, such as `unavailable`, that every request gets in place of a result. */
  error = '';
  /** Owner → its keys with their entries. */
  #entries = new Map();
  #versions = 0;
  #passed = 0;

  constructor({ error = '' } = {}) {
    this.error = error;
  }

  /** Lets time pass, so that keys expire. */
  advance(seconds) {
    this.#passed += seconds;
  }

  /** Answers a StorageRequested of a call of this caller. */
  answer({ tenant, user }, { correlationId, ofUser, ...operation }) {
    const now = performance.now() / 1000 + this.#passed;
    for (const keys of this.#entries.values()) for (const [key, { expires }] of keys) if (expires <= now) keys.delete(key);
    const result = this.error ? { error: this.error } : this.#run({ tenant, user: ofUser ? user : '' }, operation, now);
    return { error: '', keys: [], hasMore: false, deleted: false, version: 0, correlationId, ...result };
  }

  #run(owner, { get, put, list, delete: gone }, now) {
    const keys = this.#keys(owner);
    if (list) return listed(keys, list);
    const { key } = get ?? put ?? gone;
    if (key === '' || !fits(key)) return { error: 'bad_key' };
    if (put) return this.#put(owner, put, now);
    if (gone) return { deleted: keys.delete(key) };
    const { text, version } = keys.get(key) ?? {};
    return text === undefined ? {} : { value: { value: text }, version };
  }

  #put(owner, { key, value: { value: text }, ttl, ifVersion }, now) {
    const keys = this.#keys(owner);
    const seconds = ttl === undefined ? DEFAULT_TTL : ttl.seconds + ttl.nanos / 1e9;
    if (text.length > MAX_VALUE) return { error: 'too_large' };
    if (seconds < 1 || seconds > MAX_TTL) return { error: 'bad_ttl' };
    if (ifVersion !== undefined && ifVersion !== (keys.get(key)?.version ?? 0)) return { error: 'conflict' };
    const all = [...this.#entries].filter(([at]) => JSON.parse(at)[0] === owner.tenant).flatMap(([, of]) => [...of]);
    const replaced = keys.get(key);
    const others = all.filter(([, entry]) => entry !== replaced);
    const size = others.reduce((sum, [at, entry]) => sum + bytes(at) + entry.text.length, 0);
    if (others.length >= MAX_KEYS || size + bytes(key) + text.length > MAX_BYTES) return { error: 'storage_full' };
    this.#versions += 1;
    keys.set(key, { text: Buffer.from(text), version: this.#versions, expires: now + seconds });
    return { version: this.#versions };
  }

  #keys({ tenant, user }) {
    const at = JSON.stringify([tenant, user]);
    if (!this.#entries.has(at)) this.#entries.set(at, new Map());
    return this.#entries.get(at);
  }
}

function listed(keys, { prefix, after }) {
  if (!fits(prefix) || !fits(after)) return { error: 'bad_key' };
  const found = [...keys.keys()].filter((key) => key.startsWith(prefix) && compare(key, after) > 0).sort(compare);
  return { keys: found.slice(0, PAGE), hasMore: found.length > PAGE };
}

const bytes = (text) => Buffer.byteLength(text);
const fits = (text) => bytes(text) <= MAX_KEY && !CONTROL.test(text);
/** The order of the bytes in UTF-8. */
const compare = (one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other));
