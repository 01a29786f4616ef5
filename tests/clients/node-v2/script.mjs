// The official TypeScript client, 2.x line, goes through what a client can do: script.mjs URL REVISION
// TRACE.
//
// REVISION is the one to insist on. The server is the platform's `conformance`. The call that is given up carries the
// traceparent TRACE. Prints one line of JSON: what each step came to, and what it was asked.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, revision, traceparent] = process.argv.slice(2);
const isLegacy = revision < '2026-07-28';
// Before 2025-06-18 nobody could be asked.
const canBeAsked = revision >= '2025-06-18';
const transport = new StreamableHTTPClientTransport(new URL(url));
const client = new Client(
  { name: 'asp-e2e-script-v2', version: '1.0.0' },
  {
    capabilities: { sampling: {}, roots: { listChanged: true }, ...(canBeAsked ? { elicitation: {} } : {}) },
    ...(isLegacy ? { supportedProtocolVersions: [revision] } : {}),
    versionNegotiation: { mode: isLegacy ? 'legacy' : { pin: revision } },
  },
);
const asked = [];
const progress = [];
let logged = 0;
client.setRequestHandler('sampling/createMessage', () => {
  asked.push('sampling');
  return { role: 'assistant', model: 'test', content: { type: 'text', text: 'Paris' } };
});
if (canBeAsked) {
  client.setRequestHandler('elicitation/create', () => {
    asked.push('elicitation');
    return { action: 'accept', content: { username: 'ada', email: 'ada@example.com' } };
  });
}
client.setRequestHandler('roots/list', () => {
  asked.push('roots');
  return { roots: [{ uri: 'file:///src', name: 'Sources' }] };
});
client.setNotificationHandler('notifications/message', () => { logged += 1; });
const changed = new Promise((told) => {
  client.setNotificationHandler('notifications/resources/updated', ({ params }) => told(params.uri));
});

await client.connect(transport);
const { tools } = await client.listTools();
const { prompts } = await client.listPrompts();
const { resources } = await client.listResources();
const { resourceTemplates } = await client.listResourceTemplates();
const { completion } = await client.complete({
  ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' },
  argument: { name: 'arg1', value: 'par' },
});
const prompt = await client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } });
const read = await client.readResource({ uri: 'test://static-text' });
const filled = await client.readResource({ uri: 'test://template/7/data' });
// In 2026-07-28 a request asks for its logs.
const _meta = isLegacy ? {} : { 'io.modelcontextprotocol/logLevel': 'debug' };
const call = async (name, input = {}, options = undefined) => {
  const result = await client.callTool({ name, arguments: input, _meta }, options);
  return result.content[0].text;
};
let updated;
if (isLegacy) {
  await client.setLoggingLevel('debug');
  await client.subscribeResource({ uri: 'test://watched-resource' });
  await call('change_watched_resource');
  updated = await changed;
  await client.unsubscribeResource({ uri: 'test://watched-resource' });
} else {
  const listening = await client.listen({ toolsListChanged: true, resourceSubscriptions: ['test://watched-resource'] });
  await call('change_watched_resource');
  updated = await changed;
  await listening.close();
}
const called = await call('test_simple_text');
await call('test_tool_with_progress', {}, { onprogress: (told) => progress.push(told.progress) });
await call('test_tool_with_logging');
const sampled = await call('test_sampling', { prompt: 'the capital of France' });
const elicited = canBeAsked ? await call('test_elicitation', { message: 'Who?' }) : undefined;
const rooted = await call('test_input_required_result_list_roots');
const giveUp = new AbortController();
const long = { name: 'count', arguments: { to: 100, delayMs: 500 }, _meta: { traceparent } };
const counting = client.callTool(long, { signal: giveUp.signal, onprogress: () => giveUp.abort('enough') });
const cancelled = await counting.then(() => false, () => giveUp.signal.aborted);
if (isLegacy) {
  await client.sendRootsListChanged();
  await client.ping();
}
const protocol = client.getNegotiatedProtocolVersion();
await client.close();
console.log(JSON.stringify({
  protocol,
  tools: tools.map((entry) => entry.name),
  prompts: prompts.map((entry) => entry.name),
  resources: resources.map((entry) => entry.uri),
  templates: resourceTemplates.map((entry) => entry.uriTemplate),
  completed: completion.values,
  prompt: prompt.messages[0].content.text,
  read: read.contents[0].text,
  filled: filled.contents[0].text,
  called, sampled, elicited, rooted, asked, logged, progress, updated, cancelled,
}));
