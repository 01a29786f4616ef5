// The skills of a2a-node/agent.mjs and a2a-node-03/agent.mjs: those of tests/clients/a2a-python/skills.py, with the same steps.
export const DESCRIPTIONS = {
  say: 'Says the message at once.',
  count: 'Counts the words of the message.',
  ask: 'Asks for a day.',
  wait: 'Works until it is cancelled.',
};

// `cancelled` resolves when the task is cancelled.
export const steps = async function* (skill, text, cancelled) {
  if (skill === 'say') {
    yield ['message', `said ${text}`];
  } else if (skill === 'count') {
    const words = text.split(' ');
    for (const [index, word] of words.entries()) {
      yield ['work', `word ${index + 1}`];
      yield ['piece', `${index + 1}:${word} `];
    }
    yield ['data', { words: words.length }];
  } else if (skill === 'ask') {
    yield ['ask', 'Which day?'];
  } else if (skill === 'wait') {
    yield ['work', text];
    await cancelled;
    yield ['cancelled', text];
  } else {
    throw new Error(`no such skill: ${skill}`);
  }
};

export const answered = async function* (text) {
  yield ['piece', `on ${text}`];
};

// Prints a line of JSON for the test.
export const say = (members) => console.log(JSON.stringify(members));

// Returns an executor for either line of the SDK: `read(context)` returns the skill, the text and the ids of a message, and whether
// it answers a question; `publish(bus, task, step, value, isFirstPiece)` reports a step in the types of the SDK.
export const executor = (read, publish) => {
  const cancels = new Map();
  return {
    execute: async (context, bus) => {
      const { skill, text, isAnswer, ...task } = read(context);
      const cancelled = new Promise((cancel) => { cancels.set(task.id, cancel); });
      let isFirstPiece = true;
      let last;
      for await (const [step, value] of isAnswer ? answered(text) : steps(skill, text, cancelled)) {
        if (last === undefined && step !== 'message') publish(bus, task, isAnswer ? 'resumed' : 'started');
        publish(bus, task, step, value, isFirstPiece);
        isFirstPiece &&= step !== 'piece';
        last = step;
      }
      if (!['message', 'ask', 'cancelled'].includes(last)) publish(bus, task, 'completed');
      if (last === 'cancelled') say({ cancelled: text });
      cancels.delete(task.id);
      bus.finished();
    },
    cancelTask: async (id) => { cancels.get(id)?.(); },
  };
};

// Serves an application of Express at a free port; `routes(origin)` adds its routes.
export const serve = (app, routes) => {
  const server = app.listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    routes(`http://127.0.0.1:${port}`);
    say({ port });
  });
};
