//! Finds and imports the package's entrypoints, `file.mjs` or `file.mjs:export`, and makes `@asp/plugin` mean this package
//! whatever the plugin's own node_modules hold. An entrypoint stays inside the package.
import { realpathSync } from 'node:fs';
import { isAbsolute, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import * as module from 'node:module';
import { LoadError } from './errors.mjs';
import { ownPath } from './failures.mjs';

const DEFINITION = Symbol.for('asp.plugin.definition');
const API = new URL('./index.mjs', import.meta.url).href;

/** Returns the definition of each primitive, as `tool`, `resource` or `prompt` made it. */
export async function loadDefinitions(manifests, codeDirectory) {
  provideApi();
  const definitions = [];
  for (const manifest of manifests) {
    // A file that several primitives name is imported once.
    const { href } = pathToFileURL(entryFile(manifest, codeDirectory));
    const exported = await import(href).catch((error) => {
      throw missingLibrary(error) ?? error;
    });
    definitions.push(definitionOf(exported, manifest, manifests));
  }
  return definitions;
}

/** Returns `[file, export]` of an entrypoint; without an export it is empty. */
function parts({ entrypoint }) {
  const [file, name = ''] = entrypoint.split(':', 2);
  return [file, name];
}

/** Picks the export that the entrypoint names: else the default one, the one of the primitive's name, or the only one. */
function definitionOf(exported, manifest, manifests) {
  const { definition: kind, entrypoint } = manifest;
  const [file, name] = parts(manifest);
  const fits = (value) => value?.[DEFINITION] === kind;
  if (name !== '') return required(exported[name], `${file} must export ${name} = ${kind}(...)`, kind);
  const others = manifests.filter((other) => other !== manifest && parts(other)[0] === file);
  const taken = others.map((other) => parts(other)[1]);
  const isShared = others.some((other) => other.entrypoint === entrypoint && other.definition === kind);
  const free = Object.keys(exported).filter((one) => fits(exported[one]) && !taken.includes(one));
  const wanted = exportNames(manifest.id).find((one) => free.includes(one));
  if (!isShared && (fits(exported.default) || free.length === 0)) {
    return required(exported.default, `${entrypoint} must export default ${kind}(...)`, kind);
  }
  const chosen = wanted ?? (!isShared && free.length === 1 ? free[0] : undefined);
  if (chosen !== undefined) return exported[chosen];
  throw new LoadError(
    `${file} has no ${kind} named ${exportNames(manifest.id)[0]}, only ${free.join(', ')}: runtime.entrypoint names another, as ${file}:name`,
  );
}

function required(value, message, kind) {
  const found = value?.[DEFINITION];
  if (found !== kind) throw new LoadError(`${message}, not ${found ?? typeof value}`);
  return value;
}

/** The export that stands for a primitive: its id as a name, `list_orders`, or in the language's own style, `listOrders`. */
function exportNames(id) {
  const plain = id.replaceAll(/[-.]/g, '_');
  return [plain, plain.replaceAll(/_+([a-z0-9])/g, (_, letter) => letter.toUpperCase())];
}

function entryFile(manifest, codeDirectory) {
  const [file] = parts(manifest);
  const directory = realpathSync(codeDirectory);
  const path = realpathSync(resolve(directory, file));
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
  const [, importer] = /(?: imported from |Require stack:\n- )(.+)$/m.exec(error.message) ?? [];
  const at = importer === undefined ? undefined : ownPath(importer);
  return new LoadError(`${at ? `${at}: ` : ''}there is no package ${name}: a library lies beside the code: npm install ${name}`);
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
