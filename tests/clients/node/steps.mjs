// The steps of script.mjs, for both lines of the SDK: all that a client can do on the platform's `conformance`, and its
// answers to what the server asks.

const asked = [];
const progress = [];
let logged = 0;
let tellChanged;
const changed = new Promise((told) => { tellChanged = told; });

// Handlers of the server's requests, by method.
export const answers = {
  'sampling/createMessage': () => {
    asked.push('sampling');
    return { role: 'assistant', model: 'test', content: { type: 'text', text: 'Paris' } };
  },
  'elicitation/create': () => {
    asked.push('elicitation');
    return { action: 'accept', content: { username: 'ada', email: 'ada@example.com' } };
  },
  'roots/list': () => {
    asked.push('roots');
    return { roots: [{ uri: 'file:///src', name: 'Sources' }] };
  },
};
// Handlers of its notifications, by method.
export const listeners = {
  'notifications/message': () => { logged += 1; },
  'notifications/resources/updated': ({ params }) => tellChanged(params.uri),
};

const subscribed = async (client, call) => {
  await client.subscribeResource({ uri: 'test://watched-resource' });
  await call('change_watched_resource');
  const updated = await changed;
  await client.unsubscribeResource({ uri: 'test://watched-resource' });
  return updated;
};

const listened = async (client, call) => {
  const listening = await client.listen({ toolsListChanged: true, resourceSubscriptions: ['test://watched-resource'] });
  await call('change_watched_resource');
  const updated = await changed;
  await listening.close();
  return updated;
};

// Takes each step and prints what it came to, and what was asked, as one line of JSON. `callTool(call, options)` calls a tool;
// `end()` ends the session and returns its revision. The call that is given up carries `traceparent`.
export const steps = async (client, { isLegacy, canBeAsked, traceparent, callTool, end }) => {
  const { tools } = await client.listTools();
  const { prompts } = await client.listPrompts();
  const { resources } = await client.listResources();
  const { resourceTemplates } = await client.listResourceTemplates();
  if (isLegacy) await client.setLoggingLevel('debug');
  const { completion } = await client.complete({
    ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' },
    argument: { name: 'arg1', value: 'par' },
  });
  const prompt = await client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } });
  const read = await client.readResource({ uri: 'test://static-text' });
  const filled = await client.readResource({ uri: 'test://template/7/data' });
  // In 2026-07-28 a request asks for its logs.
  const logs = isLegacy ? {} : { _meta: { 'io.modelcontextprotocol/logLevel': 'debug' } };
  const call = async (name, input = {}, options = undefined) => {
    const result = await callTool({ name, arguments: input, ...logs }, options);
    return result.content[0].text;
  };
  const updated = await (isLegacy ? subscribed : listened)(client, call);
  const called = await call('test_simple_text');
  await call('test_tool_with_progress', {}, { onprogress: (told) => progress.push(told.progress) });
  await call('test_tool_with_logging');
  const sampled = await call('test_sampling', { prompt: 'the capital of France' });
  const elicited = canBeAsked ? await call('test_elicitation', { message: 'Who?' }) : undefined;
  const rooted = await call('test_input_required_result_list_roots');
  const giveUp = new AbortController();
  const long = { name: 'count', arguments: { to: 100, delayMs: 500 }, _meta: { traceparent } };
  const counting = callTool(long, { signal: giveUp.signal, onprogress: () => giveUp.abort('enough') });
  const cancelled = await counting.then(() => false, () => giveUp.signal.aborted);
  if (isLegacy) {
    await client.sendRootsListChanged();
    await client.ping();
  }
  const protocol = await end();
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
};
