//! What a plugin's author imports: `tool`, `resource`, `prompt`, `result` and the errors a handler may throw.
//! It imports nothing but the errors, so that a plugin that bundles its own copy still fits the worker: the two
//! know each other by registered symbols, never by class.
import { CallError, ToolError, isCancelled } from './errors.mjs';

export { CallError, ToolError, isCancelled };

/** Marks a definition; the worker reads it. */
const DEFINITION = Symbol.for('asp.plugin.definition');
/** Marks a result made by `result()`. */
const RESULT = Symbol.for('asp.plugin.result');

/** A tool or a task: one function of the validated arguments and the context. */
export function tool(handler, options = {}) {
  requireFunction(handler, 'tool(handler)');
  return define('tool', { call: handler, checkpoint: options.checkpoint === true });
}

/** A resource or a resource template: a reader, or `{read, list, subscribe}`. */
export function resource(reader) {
  const parts = typeof reader === 'function' ? { read: reader } : reader;
  requireFunction(parts?.read, 'resource({read})');
  for (const name of ['list', 'subscribe']) {
    if (parts[name] !== undefined) requireFunction(parts[name], `resource({${name}})`);
  }
  return define('resource', { read: parts.read, list: parts.list, subscribe: parts.subscribe });
}

/** A prompt: a function that returns a text, messages, or `{description, messages}`; or `{get, list}`. */
export function prompt(getter) {
  const parts = typeof getter === 'function' ? { get: getter } : getter;
  requireFunction(parts?.get, 'prompt({get})');
  if (parts.list !== undefined) requireFunction(parts.list, 'prompt({list})');
  return define('prompt', { get: parts.get, list: parts.list });
}

/** A tool's result with MCP content blocks of its own; `output` stays the structured part. */
export function result({ output, content, isError = false }) {
  if (content !== undefined && !Array.isArray(content)) throw new TypeError('result: content must be an array');
  return Object.freeze({ [RESULT]: true, output, content, isError: isError === true });
}

function define(kind, parts) {
  return Object.freeze({ [DEFINITION]: kind, ...parts });
}

function requireFunction(value, where) {
  if (typeof value !== 'function') throw new TypeError(`${where} needs a function`);
}
