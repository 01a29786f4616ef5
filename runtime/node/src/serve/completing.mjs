//! What a prompt or resource offers for an argument that somebody types: the most that a client is given.
import { CallError } from '../errors.mjs';
import { parseJson } from '../wire/messages.mjs';
import { serveRead } from './read.mjs';

/** Most values of one answer (MCP, CompleteResult). */
const MAX_OFFERED = 100;

/** Resolves to the completion that the request asks for. */
export function serveCompleting(definition, request, signal) {
  return serveRead(request, signal, async (context) => {
    if (!definition.complete) throw new CallError('UNSUPPORTED', 'the plugin completes nothing: it has no `complete`');
    const { [request.completing]: typed = '', ...known } = parseJson(request.arguments) ?? {};
    const offered = Array.from(await definition.complete(request.completing, typed, Object.freeze(known), context), String);
    const values = offered.slice(0, MAX_OFFERED);
    return { values, total: offered.length, hasMore: offered.length > values.length };
  });
}
