//! Finds and imports the plugin's entrypoint, and makes `@asp/plugin` mean this package whatever the plugin's
//! own node_modules hold. The entrypoint stays inside the package.
import { realpathSync } from 'node:fs';
import { isAbsolute, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import * as module from 'node:module';
import { LoadError } from './errors.mjs';

const DEFINITION = Symbol.for('asp.plugin.definition');
const API = new URL('./index.mjs', import.meta.url).href;

/** Returns the default export of the entrypoint, as `tool`, `resource` or `prompt` made it. */
export async function loadPlugin(manifest, codeDirectory) {
  provideApi();
  const path = entrypoint(manifest, codeDirectory);
  const { default: definition } = await import(pathToFileURL(path).href).catch((error) => {
    throw missingLibrary(error) ?? error;
  });
  const kind = definition?.[DEFINITION];
  if (kind !== manifest.definition) {
    throw new LoadError(`${manifest.entrypoint} must export default ${manifest.definition}(...), not ${kind ?? typeof definition}`);
  }
  return definition;
}

function entrypoint(manifest, codeDirectory) {
  const directory = realpathSync(codeDirectory);
  const path = realpathSync(resolve(directory, manifest.entrypoint));
  const inside = relative(directory, path);
  if (inside === '' || inside.startsWith('..') || isAbsolute(inside)) {
    throw new LoadError(`entrypoint ${manifest.entrypoint} is outside the package`);
  }
  return path;
}

/** Says where a library belongs that is not there: of `import`, and of CommonJS's `require`. */
function missingLibrary(error) {
  if (error?.code !== 'ERR_MODULE_NOT_FOUND' && error?.code !== 'MODULE_NOT_FOUND') return undefined;
  const [, name] = /^Cannot find (?:package|module) '((?:@[^'/]+\/)?[^@'./][^'/]*)/.exec(error.message) ?? [];
  if (name === undefined) return undefined;
  return new LoadError(`there is no package ${name}: a library lies beside the code: npm install ${name}`);
}

function provideApi() {
  if (typeof module.registerHooks === 'function') {
    module.registerHooks({
      resolve: (specifier, context, next) =>
        specifier === '@asp/plugin' ? { url: API, shortCircuit: true } : next(specifier, context),
    });
    return;
  }
  // Before Node 22.15 hooks run in a thread of their own (--allow-worker).
  const hooks = `export const resolve = (specifier, context, next) => specifier === '@asp/plugin'
    ? { url: ${JSON.stringify(API)}, shortCircuit: true } : next(specifier, context);`;
  module.register(`data:text/javascript,${encodeURIComponent(hooks)}`);
}
