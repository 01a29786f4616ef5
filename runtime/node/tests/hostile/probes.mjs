//! What a hostile plugin tries, one function a probe: `(args) => {reached, ...}`. `reached` says that the attempt
//! got through; a refusal gives its code. The same functions run outside a sandbox as the control: node run.mjs.
import * as childProcess from 'node:child_process';
import * as dgram from 'node:dgram';
import * as dns from 'node:dns/promises';
import * as fs from 'node:fs';
import * as net from 'node:net';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';

/** A control on a busy machine must have its answer by then. */
const REPLY_MS = 5000;
const MIB = 1024 * 1024;

export const PROBES = {
  tcp: ({ host, port }) => connect({ host, port }),
  unix: ({ path }) => connect({ path }),
  abstract: ({ name }) => connect({ path: `\0${name}` }),
  udp,
  dns: async ({ name }) => ({ reached: true, address: (await dns.lookup(name)).address }),
  resolve: async ({ name, server }) => {
    const resolver = new dns.Resolver({ timeout: REPLY_MS, tries: 1 });
    if (server) resolver.setServers([server]);
    return { reached: true, addresses: await resolver.resolve4(name) };
  },
  http: async ({ url }) => ({ reached: true, status: (await fetch(url, { signal: AbortSignal.timeout(REPLY_MS) })).status }),
  env: () => ({ reached: true, names: Object.keys(process.env).sort() }),
  read: ({ path }) => ({ reached: true, bytes: fs.readFileSync(path).length }),
  list: ({ path }) => ({ reached: true, names: fs.readdirSync(path).slice(0, 1000) }),
  write: ({ path }) => {
    fs.writeFileSync(path, 'was here');
    return { reached: true };
  },
  processes: () => ({ reached: true, pids: fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map(Number) }),
  kill: ({ pid, signal = 0 }) => {
    process.kill(pid, signal);
    return { reached: true };
  },
  fork,
  threads,
  memory,
  heap: () => {
    const kept = [];
    for (;;) kept.push({ row: new Array(1000).fill(kept.length) });
  },
  fds: ({ count, path }) => fill(count, () => fs.openSync(path, 'r')),
  disk: ({ mib, directory }) => {
    const piece = Buffer.alloc(MIB, 1);
    const file = fs.openSync(join(directory, 'fill.bin'), 'w');
    return fill(mib, () => fs.writeSync(file, piece));
  },
  logs: ({ mib }) => {
    const line = `${'x'.repeat(1023)}\n`;
    for (let n = 0; n < mib * 1024; n += 1) process.stdout.write(line);
    return { reached: true };
  },
  escapes: () => {
    process.stdout.write('\u001b[2Jcleared\r{"level":"error","message":"forged"}\u2028line\u0000end\n');
    return { reached: true };
  },
  busy: ({ ms }) => {
    const end = Date.now() + ms;
    while (Date.now() < end);
    return { reached: true };
  },
  ignore: ({ ms }) => new Promise((resolve) => setTimeout(resolve, ms, { reached: true })),
  exit: ({ code = 0 }) => process.exit(code),
  really_exit: ({ code = 0 }) => process.reallyExit(code),
  abort: () => process.abort(),
  segfault: () => process.kill(process.pid, 'SIGSEGV'),
  stop: () => process.kill(process.pid, 'SIGSTOP'),
};

/** Runs a probe; what it throws is a refusal. */
export async function probe(name, args) {
  try {
    return await PROBES[name](args);
  } catch (error) {
    const { cause } = error;
    const code = error.code ?? (cause?.code || cause?.name) ?? error.name;
    return { reached: false, code, message: cause ? `${error.message}: ${cause.message}` : error.message };
  }
}

function connect(where) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(where);
    socket.setTimeout(REPLY_MS, () => socket.destroy(Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' })));
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.destroy();
      resolve({ reached: true });
    });
  });
}

/** Reached when an echo comes back: that a datagram could be sent says nothing. */
function udp({ host, port }) {
  return new Promise((resolve, reject) => {
    const socket = dgram.createSocket('udp4');
    const timer = setTimeout(() => finish(() => reject(Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' }))), REPLY_MS);
    const finish = (settle) => {
      clearTimeout(timer);
      socket.close();
      settle();
    };
    socket.once('error', (error) => finish(() => reject(error)));
    socket.once('message', () => finish(() => resolve({ reached: true })));
    socket.send('hello', port, host, (error) => error && finish(() => reject(error)));
  });
}

/** Reached when as many children as asked for run at once; they are ended. */
async function fork({ count }) {
  const children = [];
  let code;
  for (let n = 0; n < count && !code; n += 1) {
    const child = childProcess.spawn('/bin/sleep', ['60'], { stdio: 'ignore' });
    const outcome = await new Promise((resolve) => {
      child.once('spawn', () => resolve(undefined));
      child.once('error', (error) => resolve(error.code));
    });
    if (outcome) code = outcome;
    else children.push(child);
  }
  for (const child of children) child.kill('SIGKILL');
  return { reached: children.length === count, started: children.length, code };
}

async function threads({ count }) {
  const workers = [];
  try {
    for (let n = 0; n < count; n += 1) {
      const worker = new Worker('setInterval(() => {}, 1000)', { eval: true });
      workers.push(worker);
      await new Promise((resolve, reject) => worker.once('online', resolve).once('error', reject));
    }
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
  return { reached: true, started: workers.length };
}

/** Memory outside the JavaScript heap, every page touched. */
function memory({ mib }) {
  const kept = [];
  for (let n = 0; n < mib; n += 1) kept.push(Buffer.alloc(MIB, 1));
  return { reached: kept.length === mib, mib: kept.length };
}

function fill(count, step) {
  let done = 0;
  try {
    for (; done < count; done += 1) step();
  } catch (error) {
    return { reached: false, done, code: error.code };
  }
  return { reached: true, done };
}
