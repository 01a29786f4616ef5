// The official TypeScript SDK, 1.x line, goes through what a client can do: script.mjs URL REVISION TRACE.
//
// The server is the platform's `conformance`; this client knows one REVISION to propose, the latest with a handshake. The
// call that is given up carries the traceparent TRACE. Prints one line of JSON: what each step came to, and what it was
// asked.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [url, , traceparent] = process.argv.slice(2);
const transport = new StreamableHTTPClientTransport(new URL(url));
const client = new Client(
  { name: 'asp-e2e-script-v1', version: '1.0.0' },
  { capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } } },
);
const asked = [];
const progress = [];
let logged = 0;
client.setRequestHandler(CreateMessageRequestSchema, () => {
  asked.push('sampling');
  return { role: 'assistant', model: 'test', content: { type: 'text', text: 'Paris' } };
});
client.setRequestHandler(ElicitRequestSchema, () => {
  asked.push('elicitation');
  return { action: 'accept', content: { username: 'ada', email: 'ada@example.com' } };
});
client.setRequestHandler(ListRootsRequestSchema, () => {
  asked.push('roots');
  return { roots: [{ uri: 'file:///src', name: 'Sources' }] };
});
client.setNotificationHandler(LoggingMessageNotificationSchema, () => { logged += 1; });
const changed = new Promise((told) => {
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => told(params.uri));
});

await client.connect(transport);
const { tools } = await client.listTools();
const { prompts } = await client.listPrompts();
const { resources } = await client.listResources();
const { resourceTemplates } = await client.listResourceTemplates();
await client.setLoggingLevel('debug');
const { completion } = await client.complete({
  ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' },
  argument: { name: 'arg1', value: 'par' },
});
const prompt = await client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } });
const read = await client.readResource({ uri: 'test://static-text' });
const filled = await client.readResource({ uri: 'test://template/7/data' });
const call = async (name, input = {}, options = undefined) => {
  const result = await client.callTool({ name, arguments: input }, undefined, options);
  return result.content[0].text;
};
await client.subscribeResource({ uri: 'test://watched-resource' });
await call('change_watched_resource');
const updated = await changed;
await client.unsubscribeResource({ uri: 'test://watched-resource' });
const called = await call('test_simple_text');
await call('test_tool_with_progress', {}, { onprogress: (told) => progress.push(told.progress) });
await call('test_tool_with_logging');
const sampled = await call('test_sampling', { prompt: 'the capital of France' });
const elicited = await call('test_elicitation', { message: 'Who?' });
const rooted = await call('test_input_required_result_list_roots');
const giveUp = new AbortController();
const long = { name: 'count', arguments: { to: 100, delayMs: 500 }, _meta: { traceparent } };
const counting = client.callTool(long, undefined, { signal: giveUp.signal, onprogress: () => giveUp.abort('enough') });
const cancelled = await counting.then(() => false, () => giveUp.signal.aborted);
await client.sendRootsListChanged();
await client.ping();
const protocol = transport.protocolVersion;
await transport.terminateSession();
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
