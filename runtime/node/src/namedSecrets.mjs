//! The operator's named secrets that this process may use: the same ones for every primitive that it serves. They are in no
//! environment.
import { CallError } from './errors.mjs';
import { Secret } from './secret.mjs';

const granted = new Map();

/** Takes what the platform's first message has. */
export function holdSecrets(values) {
  for (const [name, text] of Object.entries(values ?? {})) granted.set(name, new Secret(text));
}

/** Returns the secret `name`; throws a CallError SECRET_UNAVAILABLE when it is not granted. */
export function findSecret(name) {
  return granted.get(name) ?? refuse(name);
}

/** Throws what a handler meets that asks for a secret which it may not use. */
export function refuse(name) {
  const reason = 'not_granted';
  throw new CallError('SECRET_UNAVAILABLE', `secret ${name} is not granted to this primitive`, { reason, details: { reason } });
}
