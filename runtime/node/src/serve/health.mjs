//! What a worker says of itself, in answer to `init` and to Health.

export const SHIM = 'node/0.3.0';

/** Returns an InitResponse. */
export function health({ manifest, definition }) {
  return {
    ok: true,
    message: `${manifest.id} ${manifest.version}`,
    caps: { shim: SHIM, checkpoint: definition.checkpoint === true ? 'true' : 'false', node: process.versions.node },
  };
}
