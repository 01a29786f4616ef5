// The official TypeScript SDK, 1.x line, as a client that uses all that server-everything lists: everything.mjs URL.
//
// The bearer token is in ASP_TOKEN. Answers elicitations, sampling and roots, and prints what it saw as one line of
// JSON: the lists, the result of each tool, resource, template and prompt, what is offered for arguments, what it was
// asked, which page had to be visited first, and how often progress came.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [url] = process.argv.slice(2);
const headers = process.env.ASP_TOKEN ? { Authorization: `Bearer ${process.env.ASP_TOKEN}` } : {};
// A broken stream is an error here. By itself the SDK opens it again, and the reference server then repeats its questions,
// so that what was asked would differ from run to run.
const reconnectionOptions = {
  initialReconnectionDelay: 1000,
  maxReconnectionDelay: 1000,
  reconnectionDelayGrowFactor: 1,
  maxRetries: 0,
};
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers }, reconnectionOptions });
const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const client = new Client({ name: 'asp-e2e-everything', version: '1.0.0' }, { capabilities });
const asked = [];
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  if (params.mode === 'url') {
    asked.push({ message: params.message, url: params.url });
    return { action: 'accept' };
  }
  asked.push({ message: params.message, schema: params.requestedSchema });
  return { action: 'accept', content: { name: 'Ada', integer: 7, check: true } };
});
client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
  asked.push({ messages: params.messages, maxTokens: params.maxTokens, system: params.systemPrompt });
  return { role: 'assistant', model: 'm', stopReason: 'endTurn', content: { type: 'text', text: 'said' } };
});
client.setRequestHandler(ListRootsRequestSchema, () => {
  asked.push('roots');
  return { roots: [{ uri: 'file:///src', name: 'Sources' }] };
});
await client.connect(transport);

const tools = {
  echo: { message: 'm' },
  'get-annotated-message': { messageType: 'error', includeImage: true },
  'get-env': {},
  'get-resource-links': { count: 3 },
  'get-resource-reference': { resourceType: 'Text', resourceId: 1 },
  'get-structured-content': { location: 'Chicago' },
  'get-sum': { a: 19, b: 23 },
  'get-tiny-image': {},
  'gzip-file-as-resource': { name: 'a.gz', data: 'data:text/plain;base64,aGVsbG8=', outputType: 'resource' },
  'toggle-simulated-logging': {},
  'toggle-subscriber-updates': {},
  'trigger-long-running-operation': { duration: 0.4, steps: 4 },
  'get-roots-list': {},
  'trigger-elicitation-request': {},
  'trigger-sampling-request': { prompt: 'p', maxTokens: 9 },
  'trigger-url-elicitation': { url: 'https://example.com/visit/7', message: 'Look here' },
};
const seen = { lists: {}, tools: {}, refused: {}, resources: {}, templates: {}, prompts: {}, completions: {}, progress: 0 };
const listed = (await client.listTools()).tools;
for (const tool of listed) {
  seen.lists[tool.name] = tool;
}
// Before a tool makes resources of this session's own, which nobody imported.
const { resources } = await client.listResources();
seen.listed = {
  resources,
  templates: (await client.listResourceTemplates()).resourceTemplates,
  prompts: (await client.listPrompts()).prompts,
};
for (const [name, input] of Object.entries(tools)) {
  const progressed = () => { seen.progress += 1; };
  seen.tools[name] = await client.callTool({ name, arguments: input }, undefined, { onprogress: progressed });
}
// Simulated logging and updates end as they began.
await client.callTool({ name: 'toggle-simulated-logging', arguments: {} });
await client.callTool({ name: 'toggle-subscriber-updates', arguments: {} });
for (const input of [{ a: 'x', b: 1 }, {}]) {
  const result = await client.callTool({ name: 'get-sum', arguments: input }).catch((error) => error);
  seen.refused[JSON.stringify(input)] = result instanceof Error || result.isError === true;
}
// Where a page comes first (-32042), the user visits it, and the client puts the same call again.
const visit = { name: 'trigger-url-elicitation', arguments: { url: 'https://example.com/visit/8', errorPath: true } };
const first = await client.callTool(visit).catch((error) => error);
// An address is the same with the slash that a browser adds.
const pages = first.data?.elicitations?.map((page) => ({ ...page, url: new URL(page.url).href }));
seen.required = { code: first.code, pages };
seen.tools['trigger-url-elicitation, again'] = await client.callTool(visit);
for (const { uri } of resources) {
  seen.resources[uri] = (await client.readResource({ uri })).contents;
}
for (const { uriTemplate } of (await client.listResourceTemplates()).resourceTemplates) {
  const uri = uriTemplate.replace('{resourceId}', '7');
  const { contents } = await client.readResource({ uri });
  // A blob is a text with the time of day.
  seen.templates[uriTemplate] = contents.map(({ blob, ...rest }) => ({ ...rest, ...(blob && { said: atob(blob) }) }));
}
const inputs = {
  'simple-prompt': {},
  'args-prompt': { city: 'Oslo', state: 'x' },
  'completable-prompt': { department: 'Engineering', name: 'Alice' },
  'resource-prompt': { resourceType: 'Text', resourceId: '1' },
};
for (const { name } of (await client.listPrompts()).prompts) {
  seen.prompts[name] = await client.getPrompt({ name, arguments: inputs[name] });
}
const completed = async (ref, name, value, context) => {
  const { completion } = await client.complete({ ref, argument: { name, value }, context });
  seen.completions[`${name} ${value}`] = completion;
};
const prompt = { type: 'ref/prompt', name: 'completable-prompt' };
await completed(prompt, 'department', 'E');
await completed(prompt, 'name', 'A', { arguments: { department: 'Engineering' } });
await completed({ type: 'ref/resource', uri: 'demo://resource/dynamic/text/{resourceId}' }, 'resourceId', '7');
seen.asked = asked;
await transport.terminateSession();
await client.close();
// Absent, it is false (MCP, CallToolResult).
for (const result of Object.values(seen.tools)) if (result.isError === false) delete result.isError;
// Without what is new at each call.
const uuid = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;
const time = /\d{1,2}:\d\d:\d\d(\s[AP]M)?/g;
console.log(JSON.stringify(seen).replace(uuid, 'ID').replace(time, 'TIME'));
