//! What a plugin's author imports: `tool`, `resource`, `prompt`, `result` and the errors a handler may throw.
//! It imports nothing of the worker, so that a plugin that bundles its own copy still fits it: the two know each
//! other by registered symbols, never by class.
import { CallError, ToolError, isCancelled } from './errors.mjs';
import { z } from './zod.mjs';

export { CallError, ToolError, isCancelled, z };

/** Marks a definition; the worker reads it. */
const DEFINITION = Symbol.for('asp.plugin.definition');
/** Marks a result made by `result()`. */
const RESULT = Symbol.for('asp.plugin.result');

/**
 * A tool or a task: `tool(handler, {checkpoint})`, one function of the validated arguments and the context; or
 * `tool({input, output, checkpoint}, handler)` with zod schemas, which are its schema and convert both ways.
 */
export function tool(first, second) {
  const typed = typeof first !== 'function';
  const [handler, options = {}] = typed ? [second, first ?? undefined] : [first, second];
  requireFunction(handler, typed ? 'tool({input, output}, handler)' : 'tool(handler)');
  for (const side of ['input', 'output']) requireSchema(options[side], side);
  const { input, output } = options;
  return define('tool', { call: handler, checkpoint: options.checkpoint === true, input, output });
}

/** A resource or a resource template: a reader, or `{read, list, subscribe, complete}`. */
export function resource(reader) {
  const parts = typeof reader === 'function' ? { read: reader } : reader;
  requireFunction(parts?.read, 'resource({read})');
  for (const name of ['list', 'subscribe', 'complete']) {
    if (parts[name] !== undefined) requireFunction(parts[name], `resource({${name}})`);
  }
  const { read, list, subscribe, complete } = parts;
  return define('resource', { read, list, subscribe, complete });
}

/** A prompt: a function that returns a text, messages, or `{description, messages}`; or `{get, list, complete}`. */
export function prompt(getter) {
  const parts = typeof getter === 'function' ? { get: getter } : getter;
  requireFunction(parts?.get, 'prompt({get})');
  for (const name of ['list', 'complete']) {
    if (parts[name] !== undefined) requireFunction(parts[name], `prompt({${name}})`);
  }
  return define('prompt', { get: parts.get, list: parts.list, complete: parts.complete });
}

/** A tool's result with MCP content blocks or `_meta` of its own; `output` stays the structured part. */
export function result({ output, content, isError = false, meta }) {
  if (content !== undefined && !Array.isArray(content)) throw new TypeError('result: content must be an array');
  return Object.freeze({ [RESULT]: true, output, content, isError: isError === true, meta });
}

function define(kind, parts) {
  return Object.freeze({ [DEFINITION]: kind, ...parts });
}

function requireFunction(value, where) {
  if (typeof value !== 'function') throw new TypeError(`${where} needs a function`);
}

/** zod 4 marks its schemas with `_zod`; zod 3 has no JSON Schema to give. */
function requireSchema(value, side) {
  if (value === undefined || value?._zod !== undefined) return;
  const elder = value?._def === undefined ? 'is no zod schema: write z.object({...})' : 'is of zod 3: install zod 4';
  throw new TypeError(`tool({${side}}) ${elder}`);
}
