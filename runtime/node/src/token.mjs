//! The worker's token: one line of 64 hex digits on standard input, compared in constant time, never printed.
import { readSync } from 'node:fs';
import { timingSafeEqual } from 'node:crypto';

const TOKEN = /^[0-9a-f]{64}$/i;
/** The line, its end, and one byte that shows that it is too long. */
const MAX_LINE = 66;

/** Reads the token from standard input; throws when there is none. */
export function readToken() {
  const buffer = Buffer.alloc(MAX_LINE);
  let length = 0;
  while (length < MAX_LINE && !buffer.subarray(0, length).includes(0x0a)) {
    const read = readSync(0, buffer, length, MAX_LINE - length, null);
    if (read === 0) break;
    length += read;
  }
  const line = buffer.subarray(0, length).toString('latin1').replace(/\r?\n[^]*$/, '');
  buffer.fill(0);
  if (!TOKEN.test(line)) throw new Error('no token of 64 hex digits on standard input');
  return new Token(line);
}

export class Token {
  #expected;

  constructor(hex) {
    this.#expected = Buffer.from(`Bearer ${hex}`);
  }

  /** Whether this value of the `authorization` metadata is exactly the token. */
  matches(value) {
    if (typeof value !== 'string') return false;
    const given = Buffer.from(value);
    return given.length === this.#expected.length && timingSafeEqual(given, this.#expected);
  }
}
