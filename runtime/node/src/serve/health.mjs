//! What a worker says of itself, in answer to `init` and to Health.

export const SHIM = 'node/0.3.0';

/** Returns an InitResponse of a Package. */
export function health(served) {
  const names = served.all().map(({ manifest }) => `${manifest.id} ${manifest.version}`);
  return {
    ok: true,
    message: names.join(', '),
    caps: { shim: SHIM, checkpoint: checkpoint(served.all()), node: process.versions.node },
  };
}

/** Which primitives save and resume (plugin.proto, `InitResponse.caps`). */
function checkpoint(plugins) {
  const saving = plugins.filter(({ definition }) => definition.checkpoint === true);
  if (saving.length === plugins.length) return 'true';
  return saving.length === 0 ? 'false' : `of ${saving.map(({ manifest }) => manifest.id).join(' ')}`;
}
