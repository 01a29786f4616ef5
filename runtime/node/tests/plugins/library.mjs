import { CallError, resource } from '@asp/plugin';

const BYTES = Buffer.alloc(100_000, 3);

export default resource({
  async read(uri, { name }, ctx) {
    if (name === 'text') return 'é'.repeat(70_000);
    if (name === 'bytes') return BYTES;
    if (name === 'two') return [{ uri: `${uri}#1`, mimeType: 'text/plain', text: 'one' }, { uri: `${uri}#2`, mimeType: 'application/octet-stream', blob: BYTES.subarray(0, 3) }];
    if (name === 'lines') return lines();
    if (name === 'nulls') return { uri: null, mimeType: null, text: 'n', blob: null };
    if (name === 'same') return [{ text: 'é'.repeat(70_000) }, { text: 'b' }, 'c', 'd'];
    if (name === 'wait') return wait(ctx);
    if (name === 'bad') return { text: 1, blob: BYTES };
    throw new CallError('NOT_FOUND', `no such book: ${name}`);
  },
  complete: async (argument, value, known) => [`${argument} ${value} ${JSON.stringify(known)}`],
  list: (ctx) => [{ uri: 'lib://a', name: 'a', mimeType: 'text/plain', title: ctx.caller.tenant }],
  subscribe: (uri, ctx) => (uri === 'lib://deaf' ? deaf() : changes(uri, ctx)),
});

async function* changes(uri, ctx) {
  yield;
  yield `${uri}/child`;
  await wait(ctx);
}

/** Tells of one change, and then waits for another one whoever has left. */
function deaf() {
  let told = false;
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    next: async () => (told ? new Promise(() => {}) : { done: (told = true) && false, value: undefined }),
    return: async () => {
      process.stdout.write('let go\n');
      return { done: true };
    },
  };
}

async function* lines() {
  for (let n = 0; n < 3; n += 1) yield { text: `line ${n}\n` };
}

async function wait(ctx) {
  await new Promise((resolve, reject) => {
    ctx.signal.addEventListener('abort', () => {
      process.stdout.write(`aborted ${ctx.signal.reason.code}\n`);
      reject(ctx.signal.reason);
    });
  });
}
