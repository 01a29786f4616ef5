//! The tests' puppet: does what `act` says. `release` ends what another call waits for.
import { readFileSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { CallError, ToolError, isCancelled, result, tool } from '@asp/plugin';

const waiting = new Map();

const ACTS = {
  echo: (args) => ({ echo: args.value ?? null }),
  nothing: () => undefined,
  libraries: () => ({ files: Object.keys(createRequire(import.meta.url).cache) }),
  litter() {
    for (let round = 0; round < 200; round += 1) Array.from({ length: 20_000 }, () => ({ round }));
    return {};
  },
  shout() {
    for (const stream of [process.stdout, process.stderr]) stream.write('x'.repeat(8 << 20));
    return { kept: [process.stdout.writableLength, process.stderr.writableLength] };
  },
  facts: (args, ctx) => ({
    caller: ctx.caller, requestId: ctx.requestId, taskId: ctx.taskId, deadline: ctx.deadline?.toISOString(),
    budget: ctx.budget, token: String(ctx.token), revealed: ctx.token?.reveal(), json: JSON.stringify(ctx.token),
    key: ctx.idempotencyKey, attrs: ctx.attrs, resume: ctx.resume ?? null, env: process.env.FROM_INIT,
  }),
  progress(args, ctx) {
    for (let percent = 0; percent <= args.to; percent += 1) ctx.progress(percent, `step ${percent}`, { percent });
    ctx.status('counted', { to: args.to });
    return {};
  },
  async chunks(args, ctx) {
    await ctx.chunk('text ');
    await ctx.chunk({ row: 1 });
    await ctx.chunk('é'.repeat(args.length));
    return {};
  },
  artifact: async (args, ctx) => ({ uri: await ctx.artifact({ name: args.name, type: 'csv', contentType: 'text/csv', data: 'x'.repeat(args.size) }) }),
  async file(args, ctx) {
    writeFileSync(`${ctx.workDir}/out.bin`, Buffer.alloc(args.size, 7));
    return { uri: await ctx.artifact({ name: 'out.bin', file: args.path ?? 'out.bin' }) };
  },
  link: async (args, ctx) => ({ uri: await ctx.artifact({ uri: args.uri, type: 'link' }) }),
  twice: async (args, ctx) => {
    await ctx.artifact({ name: 'a', data: '1' });
    await ctx.artifact({ name: 'a', data: '2' });
  },
  log(args, ctx) {
    ctx.log('warn', 'from log');
    for (const level of ['notice', 'emergency']) ctx.log(level, 'from log');
    console.info('from console', { a: 1 });
    console.error('from\nerror');
    process.stdout.write('from stdout\n');
    return {};
  },
  async store(args, ctx) {
    const options = { user: true };
    try {
      const found = await ctx.storage.getVersioned('n', options);
      const put = { ...options, ttlSeconds: 1.5, ifVersion: found?.version ?? 0 };
      const version = await ctx.storage.put('n', (found?.value ?? 0) + 1, put);
      return { version, keys: await ctx.storage.list('p'), gone: await ctx.storage.delete('x') };
    } catch ({ code, reason }) {
      return { code, reason };
    }
  },
  secret({ name }, ctx) {
    const secret = ctx.secret(name);
    const inEnvironment = Object.values(process.env).includes(secret.reveal());
    return { text: secret.reveal(), printed: `${secret} ${JSON.stringify(secret)}`, inEnvironment };
  },
  fetches: async (args, ctx) => ({ got: await Promise.all(Array.from({ length: args.count }, (_, n) => ctx.storage.get(`k${n}`))) }),
  async elicit(args, ctx) {
    try {
      return await ctx.elicit(args.id, args.question);
    } catch (error) {
      if (args.rethrow) throw error;
      return { code: error.code, reason: error.reason };
    }
  },
  flood: (args, ctx) => Promise.all(Array.from({ length: args.count }, (_, n) => ctx.delegate('classifier', n))),
  async delegate(args, ctx) {
    return { answer: await ctx.delegate(args.id ?? 'classifier', args.input, { timeoutSeconds: args.timeout }) };
  },
  async steps(args, ctx) {
    let { done } = ctx.resume?.state ?? { done: 0 };
    const from = done;
    while (done < args.to) {
      done += 1;
      await ctx.checkpoint({ done });
    }
    return { from, done };
  },
  big: (args, ctx) => ctx.checkpoint('x'.repeat(70_000)),
  ask_save_ask: async (args, ctx) => {
    const first = ctx.resume?.state?.first ?? (await ctx.elicit('approve')).fields.n;
    await ctx.checkpoint({ first });
    const second = (await ctx.elicit('approve')).fields.n;
    return { first, second, label: await ctx.delegate('classifier', { first, second }) };
  },
  ask_in_vain: async (args, ctx) => {
    if (!ctx.resume) await ctx.elicit('approve').catch((error) => console.log(error.code));
    await ctx.checkpoint({});
    return { n: (await ctx.elicit('approve')).fields.n };
  },
  async wait(args, ctx) {
    console.log('waiting');
    try {
      await sleep(600_000, undefined, { signal: ctx.signal });
    } finally {
      process.stdout.write(`stopped ${ctx.requestId} ${isCancelled(ctx.signal.reason)}\n`);
    }
  },
  async ignore(args, ctx) {
    console.log('waiting');
    await new Promise((resolve) => waiting.set(ctx.requestId, resolve));
    return { ignored: true, cancelled: ctx.cancelled, preempted: ctx.preempted };
  },
  async step_on(args, ctx) {
    console.log('waiting');
    await new Promise((resolve) => waiting.set(ctx.requestId, resolve));
    process.stdout.write(`signal ${ctx.signal.aborted}\n`);
    ctx.progress(50, 'next step');
    process.stdout.write('went on\n');
    return {};
  },
  async catch_end(args, ctx) {
    try {
      await ctx.elicit('approve');
      return {};
    } catch (error) {
      return { partial: [isCancelled(error), ctx.cancelled, ctx.preempted] };
    }
  },
  async save_on(args, ctx) {
    console.log('waiting');
    await new Promise((resolve) => waiting.set(ctx.requestId, resolve));
    await ctx.checkpoint({ at: 'here' });
    process.stdout.write('went on\n');
    return {};
  },
  release(args) {
    waiting.get(args.id)();
    waiting.delete(args.id);
    return {};
  },
  fail: () => { throw new Error('secret detail in /etc/shadow'); },
  own: () => { throw new CallError('NO_SUCH_CITY', 'there is no such city', { details: { city: 'X' } }); },
  tool_error: () => { throw new ToolError('try another city'); },
  blocks: () => result({ output: { ok: true }, content: [{ type: 'text', text: 'ok' }], meta: { 'example.org/n': 1 } }),
  exit: () => process.exit(0),
  reject: async () => { Promise.reject(new Error('nobody catches me')); await once(process, 'never'); },
  late: (args, ctx) => { setTimeout(() => { ctx.log('info', 'too late'); try { ctx.progress(1); } catch (error) { process.stdout.write(`late ${error.code}\n`); } }, 1); return {}; },
  huge: () => ({ text: 'x'.repeat(5 * 1024 * 1024) }),
  cyclic: () => { const a = {}; a.a = a; return a; },
  passwd: () => ({ text: readFileSync('/etc/passwd', 'utf8') }),
  fetch: async (args) => { const answer = await fetch(args.url); return { status: answer.status, text: await answer.text() }; },
};

export default tool(async (args, ctx) => ACTS[args.act](args, ctx), { checkpoint: true });
