//! What the worker needs of `plugin.json` (runtime/README.md). The supervisor has checked it; this reads it,
//! fills in what may be absent and refuses what cannot be run.
import { readFileSync } from 'node:fs';

/** kind of the manifest → the definition the entrypoint must export */
const DEFINITIONS = {
  tool: 'tool',
  task: 'tool',
  resource: 'resource',
  resource_template: 'resource',
  prompt: 'prompt',
};
/** Bytes of one artifact when the manifest has no `diskBytes`. */
const DEFAULT_DISK_BYTES = 256 * 1024 * 1024;
const DEFAULT_CONCURRENCY = 8;

/** Reads the manifest: an entry for each primitive of the package; throws with a reason in one line. */
export function readManifests(path) {
  const { primitives, ...shared } = JSON.parse(readFileSync(path, 'utf8'));
  const parts = Object.entries(primitives ?? {});
  if (parts.length === 0) return [entry(shared)];
  return parts.map(([id, part]) => entry({ ...shared, ...part, id, limits: { ...shared.limits, ...part.limits } }));
}

function entry(manifest) {
  if (manifest.format !== 1) throw new Error(`plugin.json: format ${manifest.format} is not known, only 1`);
  if (manifest.language !== 'node') throw new Error(`plugin.json: language is ${manifest.language}, not node`);
  const definition = Object.hasOwn(DEFINITIONS, manifest.kind) ? DEFINITIONS[manifest.kind] : undefined;
  if (!definition) throw new Error(`plugin.json: kind ${manifest.kind} is not known`);
  if (typeof manifest.entrypoint !== 'string') throw new Error('plugin.json: entrypoint is missing');
  return Object.freeze({
    id: String(manifest.id),
    version: String(manifest.version),
    definition,
    entrypoint: manifest.entrypoint,
    inputSchema: manifest.inputSchema,
    outputSchema: manifest.outputSchema,
    artifactSchema: manifest.artifactSchema,
    concurrency: manifest.pool?.mode === 'ephemeral' ? 1 : (manifest.pool?.concurrency ?? DEFAULT_CONCURRENCY),
    artifactBytes: manifest.limits?.diskBytes ?? DEFAULT_DISK_BYTES,
    elicitations: new Set(manifest.elicitations ?? []),
    delegations: new Set(manifest.delegations ?? []),
  });
}
