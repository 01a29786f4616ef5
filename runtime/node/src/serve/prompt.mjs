//! PromptPlugin over a `prompt(...)` definition. A text is one user message; content is a text or an MCP block.
import { CallError } from '../errors.mjs';
import { json } from '../wire/messages.mjs';
import { readArguments } from '../schema.mjs';
import { serveCompleting } from './completing.mjs';
import { serveAsking, serveRead } from './read.mjs';

const ROLES = new Set(['user', 'assistant']);
/** Messages of one prompt, prompts of one list. */
const MAX_MESSAGES = 1000;

/** Returns the handlers of PromptPlugin's methods. */
export function promptHandlers(served) {
  return {
    // Its request names no primitive.
    List: (request, { signal }) => serveRead(request, signal, (context) => listAll(served.ofKind('prompt'), context)),
    Get: async (request, { signal }) => {
      const plugin = served.require(request.name, 'prompt');
      const { definition } = plugin;
      if (request.completing) return { completion: await serveCompleting(definition, request, signal) };
      const work = async (context) => ({ result: await get(definition, plugin, request, context) });
      const { asked, result } = await serveAsking(request, signal, work, plugin);
      return asked ? { asked } : result;
    },
  };
}

async function listAll(plugins, context) {
  const lists = await Promise.all(plugins.map(({ definition }) => list(definition, context)));
  return { prompts: lists.flatMap(({ prompts }) => prompts) };
}

async function list(definition, context) {
  const found = definition.list ? await definition.list(context) : [];
  if (found.length > MAX_MESSAGES) throw new CallError('OVERLOADED', `more than ${MAX_MESSAGES} prompts`);
  return { prompts: found.map(({ name, title, description }) => ({ name: String(name), title, description })) };
}

async function get(definition, plugin, request, context) {
  const args = readArguments(request.arguments, plugin.schemas);
  const found = await definition.get(args, context);
  if (typeof found === 'string') return { messages: [message({ role: 'user', content: found })] };
  const { description, messages } = Array.isArray(found) ? { messages: found } : (found ?? {});
  if (!Array.isArray(messages)) throw new TypeError('prompt: give a text, messages, or {description, messages}');
  if (messages.length > MAX_MESSAGES) throw new CallError('OVERLOADED', `more than ${MAX_MESSAGES} messages`);
  return { description: String(description ?? ''), messages: messages.map(message) };
}

function message({ role, content }) {
  if (!ROLES.has(role)) throw new TypeError('prompt: a role is user or assistant');
  const block = typeof content === 'string' ? { type: 'text', text: content } : content;
  return { role, content: json(block, 'the message') };
}
