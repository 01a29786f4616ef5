//! The questions a call has open: elicitations, delegations and unacknowledged checkpoints. At most 16 at once;
//! each is answered once, by its key; what answers nothing is dropped.
import { CallError } from '../errors.mjs';

/** Open questions of one call (proto/plugin.proto). */
const MAX_OPEN = 16;

export class Questions {
  #open = new Map();

  /** Returns the promise of the answer; throws when the key is open already or there are too many. */
  open(key) {
    if (this.#open.has(key)) throw new CallError('ALREADY_ASKED', `${key} is already being asked`);
    if (this.#open.size >= MAX_OPEN) throw new CallError('OVERLOADED', `more than ${MAX_OPEN} open questions`);
    return new Promise((resolve, reject) => this.#open.set(key, { resolve, reject }));
  }

  /** Whether this key waits for its answer. */
  has(key) {
    return this.#open.has(key);
  }

  answer(key, value) {
    this.#take(key)?.resolve(value);
  }

  refuse(key, error) {
    this.#take(key)?.reject(error);
  }

  refuseAll(error) {
    for (const key of [...this.#open.keys()]) this.refuse(key, error);
  }

  #take(key) {
    const question = this.#open.get(key);
    this.#open.delete(key);
    return question;
  }
}
