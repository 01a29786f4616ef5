//! What a hostile plugin tries, in JavaScript. Arguments: {attempts: [{name, do, ...}]}; the answer has "allowed" or
//! "denied: why" under each name. The same file run as a program is the control: node attempts.mjs <arguments>.
import * as childProcess from 'node:child_process';
import * as dgram from 'node:dgram';
import * as fs from 'node:fs';
import * as https from 'node:https';
import * as net from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as v8 from 'node:v8';

const WITHIN_MS = 20_000;
const MIB = 1 << 20;

function expect(holds, why) {
  if (!holds) throw new Error(why);
}

/** Ends with the first answer, an error, or nothing within the time. */
function within(start) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('no answer')), WITHIN_MS);
    start(resolve, reject, () => clearTimeout(timer));
  });
}

function connect(where, greets) {
  return within((resolve, reject, done) => {
    const socket = net.connect(where);
    socket.once('close', done);
    socket.once('error', reject);
    socket.once('end', () => reject(new Error('closed')));
    socket.once('data', () => socket.destroy() && resolve());
    socket.once('connect', () => (greets ? socket.write('hello\n') : socket.destroy() && resolve()));
  });
}

function udp({ host, port, bytes }) {
  return within((resolve, reject, done) => {
    const socket = dgram.createSocket('udp4');
    const end = (settle, value) => {
      done();
      socket.close();
      settle(value);
    };
    socket.once('error', (error) => end(reject, error));
    socket.once('message', (answer) => end(answer[0] === bytes[0] ? resolve : reject, new Error('another answer')));
    // Connected, so that a port nobody listens at answers with an error.
    socket.connect(port, host, () => socket.send(Buffer.from(bytes), (error) => error && end(reject, error)));
  });
}

function environments({ mark }) {
  for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      if (fs.readFileSync(`/proc/${pid}/environ`).includes(mark)) return;
    } catch {
      continue;
    }
  }
  throw new Error('not found');
}

function write({ path }) {
  const file = join(path, `attempt-${process.pid}`);
  fs.writeFileSync(file, 'x');
  fs.unlinkSync(file);
}

async function processes({ count }) {
  const started = [];
  try {
    while (started.length < count) {
      const child = childProcess.spawn('/bin/sleep', ['60'], { stdio: 'ignore' });
      await new Promise((resolve, reject) => child.once('spawn', resolve).once('error', reject));
      started.push(child);
    }
  } finally {
    for (const child of started) child.kill('SIGKILL');
  }
}

function files({ path, count }) {
  const opened = [];
  try {
    while (opened.length < count) opened.push(fs.openSync(path, 'r'));
  } finally {
    opened.forEach((file) => fs.closeSync(file));
  }
}

function disk({ path, mib }) {
  const paths = [];
  try {
    while (paths.length < mib) {
      paths.push(join(path, `fill-${paths.length}`));
      fs.writeFileSync(paths.at(-1), Buffer.alloc(MIB));
    }
  } finally {
    paths.forEach((file) => fs.rmSync(file, { force: true }));
  }
}

const ATTEMPTS = {
  tcp: ({ host, port }) => connect({ host, port }, true),
  udp,
  unix: ({ path }) => connect({ path }, false),
  abstract: ({ path }) => connect({ path: `\0${path}` }, false),
  open: ({ path }) => fs.closeSync(fs.openSync(path, 'r')),
  read: ({ path, mark }) => expect(fs.readFileSync(path).includes(mark), 'something else'),
  list: ({ path, mark }) => expect(fs.readdirSync(path).includes(mark), 'something else'),
  environments,
  write,
  signal: ({ pid }) => process.kill(pid, 0),
  processes,
  files,
  disk,
};

async function attempt(want) {
  try {
    await ATTEMPTS[want.do](want);
    return 'allowed';
  } catch (error) {
    return `denied: ${error.code ?? ''} ${error.message}`;
  }
}

async function attempts(wanted) {
  const found = {};
  for (const want of wanted) found[want.name] = await attempt(want);
  return found;
}

// ---------------------------------------------------------------- harm

const HARM = {
  exit: () => process.exit(0),
  crash: () => process.kill(process.pid, 'SIGSEGV'),
  memory: () => {
    for (const held = []; ; ) held.push(Buffer.alloc(8 * MIB, 1));
  },
  busy: () => {
    for (;;);
  },
  ignore: () => new Promise((resolve) => setTimeout(resolve, 600_000)),
  forks: async () => {
    for (;;) await processes({ count: 1000 }).catch(() => new Promise((resolve) => setTimeout(resolve, 10)));
  },
  logs: () => {
    const line = `\u001b[31mflood\u001b[0m \r${'x'.repeat(1000)}\n`.repeat(64);
    for (const until = Date.now() + 1500; Date.now() < until; ) process.stdout.write(line);
  },
};

// ---------------------------------------------------------------- the language's own bounds

/** What a function throws, in short. */
function refusal(attempted) {
  try {
    attempted();
    return 'nothing';
  } catch (error) {
    return error.code ?? error.name;
  }
}

async function knobs() {
  const inspector = await import('node:inspector');
  const workers = await import('node:worker_threads');
  const has = (scope, path) => process.permission.has(scope, path);
  return {
    push: refusal(() => {
      Array.prototype.push = () => 0;
    }),
    extend: refusal(() => {
      Object.prototype.polluted = true;
    }),
    polluted: String({}.polluted),
    proto: String({}.__proto__),
    addon: refusal(() => process.dlopen({ exports: {} }, '/nonexistent.node')),
    child: refusal(() => childProcess.spawnSync('/bin/true')),
    worker: refusal(() => new workers.Worker('1', { eval: true })),
    inspector: refusal(() => inspector.open(0)),
    permissions: {
      machine: has('fs.read', '/etc/passwd'),
      package: has('fs.read', process.env.ASP_PLUGIN_CODE),
      packageWrite: has('fs.write', process.env.ASP_PLUGIN_CODE),
      work: has('fs.write', process.env.ASP_WORK_DIR),
      child: has('child'),
      worker: has('worker'),
      addons: has('addon'),
    },
    heap: v8.getHeapStatistics().heap_size_limit,
    directory: process.cwd(),
  };
}

// ---------------------------------------------------------------- the way out

async function get({ url, by }) {
  try {
    if (by === 'fetch') {
      const answer = await fetch(url, { signal: AbortSignal.timeout(10_000) });
      expect(answer.ok, `status ${answer.status}`);
      return await answer.text();
    }
    return await new Promise((resolve, reject) => {
      const request = https.get(url, { timeout: 10_000 }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (part) => (text += part));
        answer.on('end', () => resolve(answer.statusCode === 200 ? text : `denied: status ${answer.statusCode}`));
      });
      request.on('error', reject);
    });
  } catch (error) {
    return `denied: ${error.message}: ${error.cause?.message ?? ''}`;
  }
}

export async function run(args, ctx) {
  if (args.harm) {
    ctx.progress(1, 'begun');
    // The message goes out before a loop that lets nothing out.
    await new Promise((resolve) => setTimeout(resolve, 50));
    await HARM[args.harm]();
    return {};
  }
  if (args.knobs) return knobs();
  if (args.fetch) return { text: await get(args.fetch) };
  if (args.names) return { names: Object.keys(process.env).sort() };
  return attempts(args.attempts);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.stdout.write(JSON.stringify(await attempts(JSON.parse(process.argv[2]).attempts)));
}
