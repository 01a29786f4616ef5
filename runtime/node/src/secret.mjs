//! A secret that does not print: `***` in logs, JSON and the inspector. `reveal()` gives it out.
import { inspect } from 'node:util';

export class Secret {
  #value;

  constructor(value) {
    this.#value = value;
    Object.freeze(this);
  }

  reveal() {
    return this.#value;
  }

  toString() {
    return '***';
  }

  toJSON() {
    return '***';
  }

  [inspect.custom]() {
    return '***';
  }
}
