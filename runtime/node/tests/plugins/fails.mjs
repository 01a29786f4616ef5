//! Fails in the ways that an author meets.
import { execFileSync } from 'node:child_process';
import { tool } from '@asp/plugin';

const ACTS = {
  type: () => undefined.length,
  network() {
    const cause = Object.assign(new Error('getaddrinfo EAI_AGAIN example.org'), { code: 'EAI_AGAIN' });
    throw new TypeError('fetch failed', { cause });
  },
  bigint: () => ({ count: 10n }),
  function: () => () => 1,
  process: () => execFileSync('/bin/true'),
  odd() {
    throw { get stack() { throw new Error('no stack'); }, get cause() { throw new Error('no cause'); } };
  },
};

export default tool((args) => ACTS[args.act]());
