// The steps of a2a-node/script.mjs and a2a-node-03/script.mjs: as tests/clients/a2a-python/steps.py, with the same answers.
//
// `agent` is an SDK's client with these methods:
//   card()                         the agent's card, as an object to print
//   send(text, task, immediately)  a message, blocking unless `immediately`; `task` is an earlier answer that it continues
//   stream(text)                   the events that a message causes, until their end
//   get(id), cancel(id)            a task
//   list(context)                  the ids of the tasks of a context; absent in 0.3
//   subscribe(id)                  the events of a task, until their end
//   push(id)                       registers a webhook
//   signature()                    an object to print; absent if the SDK verifies no cards

// Prints one line of JSON: what the step saw, or its error.
const step = async (name, work) => {
  let seen;
  try {
    seen = await work();
  } catch (error) {
    seen = { error: `${error.constructor.name}: ${error.message}` };
  }
  console.log(JSON.stringify({ step: name, ...seen }));
};

const outline = async (events) => {
  const all = await Array.fromAsync(events);
  return { kinds: all.map(({ kind }) => kind), states: all.flatMap(({ state }) => state ?? []) };
};

export const run = async (agent) => {
  await step('card', () => agent.card());
  if (agent.signature) await step('signature', () => agent.signature());
  await step('send', async () => {
    const { kind, id, state } = await agent.send('tck-complete-task by a client');
    const got = await agent.get(id);
    return { kind, state, got: got.state, same: got.id === id };
  });
  await step('message', () => agent.send('tck-message-response by a client'));
  await step('artifacts', async () => {
    const found = {};
    for (const kind of ['text', 'file', 'file-url', 'data']) {
      found[kind] = (await agent.send(`tck-artifact-${kind} by a client`)).parts;
    }
    return found;
  });
  await step('failure', async () => ({ state: (await agent.send('tck-task-failure by a client')).state }));
  await step('stream', () => outline(agent.stream('tck-stream-basic by a client')));
  await step('question', async () => {
    const asked = await agent.send('tck-multi-turn by a client');
    const answered = await agent.send('done', asked);
    const same = asked.id === answered.id && asked.context === answered.context;
    return { asked: asked.state, text: asked.text, answered: answered.state, same };
  });
  await step('cancel', async () => {
    const running = await agent.send('tck-cancel by a client', undefined, true);
    const ended = await agent.cancel(running.id);
    return { state: ended.state, same: ended.id === running.id };
  });
  if (agent.list) {
    await step('list', async () => {
      const task = await agent.send('tck-complete-task to be listed');
      const ids = await agent.list(task.context);
      return { same: ids.length === 1 && ids[0] === task.id };
    });
  }
  await step('resubscribe', async () => {
    const running = await agent.send('tck-long-running by a client', undefined, true);
    return outline(agent.subscribe(running.id));
  });
  await step('push', async () => {
    const { id } = await agent.send('tck-complete-task by a client');
    await agent.push(id);
    return { registered: id };
  });
};
