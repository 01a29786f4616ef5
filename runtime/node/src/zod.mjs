//! zod for authors who install nothing: `import { tool, z } from '@asp/plugin'`. It is loaded by the first use of
//! `z`, so that a plugin without types does not pay for it when its worker starts.
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
let loaded;

/** Returns the package's own zod. */
export function zod() {
  loaded ??= require('zod').z;
  return loaded;
}

export const z = new Proxy(Object.freeze({}), {
  get: (_target, name) => zod()[name],
  has: (_target, name) => name in zod(),
});
