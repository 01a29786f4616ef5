//! Starts the real worker process the way the supervisor does, and talks to it over its socket with grpc-js.
import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as grpc from '@grpc/grpc-js';
import { workerFlags } from '../src/flags.mjs';
import { protocol } from '../scripts/generate.mjs';

const SHIM = fileURLToPath(new URL('..', import.meta.url));
const PLUGINS = fileURLToPath(new URL('plugins/', import.meta.url));
const NODE = process.env.ASP_NODE_BIN ?? process.execPath;
/** Far above what anything here takes: it only ends a test that hangs. */
const HANG_MS = 120_000;
const HEAP_MIB = 192;

/**
 * Starts a worker for tests/plugins/<name> (or for `code`, a package directory).
 * @returns {Promise<Worker>} when it says that it listens, or when it has ended
 */
export async function startWorker(entrypoint, manifest = {}, { env = {}, token, code } = {}) {
  const worker = new Worker(entrypoint, manifest, { env, token, code });
  await worker.listening();
  return worker;
}

export class Worker {
  stdout = '';
  stderr = '';
  inbox = [];
  #waiters = [];
  #clients = [];
  #calls = 0;

  constructor(entrypoint, manifest, { env, token = randomBytes(32).toString('hex'), code }) {
    this.token = token;
    this.directory = mkdtempSync(join(tmpdir(), 'asp-node-'));
    this.work = join(this.directory, 'work');
    this.plugin = join(this.directory, 'plugin');
    this.code = join(this.plugin, 'package');
    this.socket = join(this.directory, 'w.sock');
    const path = join(this.plugin, 'plugin.json');
    mkdirSync(this.work);
    mkdirSync(this.plugin);
    cpSync(code ?? PLUGINS, this.code, { recursive: true });
    writeFileSync(path, JSON.stringify({ ...MANIFEST, entrypoint, ...manifest }));
    const flags = workerFlags(NODE_VERSION, { plugin: this.plugin, proxy: 'HTTP_PROXY' in env });
    this.process = spawn(NODE, [...flags, `--max-old-space-size=${HEAP_MIB}`, join(SHIM, 'worker.mjs')], {
      cwd: this.work,
      stdio: ['pipe', 'pipe', 'pipe'],
      env: {
        ASP_WORKER_SOCKET: this.socket, ASP_PLUGIN_MANIFEST: path, ASP_PLUGIN_CODE: this.code,
        ASP_WORK_DIR: this.work, ASP_WORKER_ID: 'test', HOME: this.work, TMPDIR: this.work,
        PATH: '/usr/bin:/bin', LANG: 'C.UTF-8', TZ: 'UTC', ...env,
      },
    });
    this.process.stdin.on('error', () => {});
    this.process.stdin.end(`${this.token}\n`);
    this.process.stdout.on('data', (data) => { this.stdout += data; });
    this.process.stderr.on('data', (data) => { this.stderr += data; });
    this.ended = new Promise((resolve) => {
      this.process.on('close', (exitCode, signal) => resolve({ code: exitCode, signal }));
    });
    this.hang = setTimeout(() => this.process.kill('SIGKILL'), HANG_MS);
    this.ended.then(() => {
      clearTimeout(this.hang);
      for (const client of this.#clients) client.close();
      rmSync(this.directory, { recursive: true, force: true });
      for (const wake of this.#waiters.splice(0)) wake();
    });
  }

  /** Resolves when the socket takes connections, or the process has ended. */
  async listening() {
    let over = false;
    this.ended.then(() => { over = true; });
    while (!over && !(await accepts(this.socket))) await sleep(2);
  }

  client(name) {
    const Client = grpc.makeGenericClientConstructor(definition(name), name);
    // The first attempt is usually too early; the default waits a second before the next.
    const client = new Client(`unix:${this.socket}`, grpc.credentials.createInsecure(), {
      'grpc.initial_reconnect_backoff_ms': 5, 'grpc.max_reconnect_backoff_ms': 20, 'grpc.use_local_subchannel_pool': 1,
    });
    this.#clients.push(client);
    return client;
  }

  metadata(token = this.token) {
    const metadata = new grpc.Metadata();
    if (token !== null) metadata.set('authorization', `Bearer ${token}`);
    return metadata;
  }

  /** Opens the Session without an init. */
  open(token = this.token) {
    this.stream = this.client('ToolPlugin').Session(this.metadata(token));
    this.status = new Promise((resolve) => this.stream.on('status', resolve));
    this.stream.on('error', () => {});
    this.stream.on('data', (message) => {
      this.inbox.push(message);
      for (const wake of this.#waiters.splice(0)) wake();
    });
    return this;
  }

  /** Opens the Session and waits for the init. */
  async session(init = {}) {
    this.open();
    this.send({ init: { ctx: {}, env: {}, ...init } });
    await this.next((message) => message.init);
    return this;
  }

  send(message) {
    this.stream.write(message);
  }

  invoke(requestId, args = {}, more = {}) {
    this.send({
      invoke: {
        requestId, taskId: `T-${requestId}`, primitive: 'test', version: '1.0.0',
        ctx: { tenantId: 'acme', userId: 'alice', sessionId: 's1' },
        arguments: { value: Buffer.from(JSON.stringify(args)) }, ...more,
      },
    });
  }

  /** Begins a call under an id of its own, which it returns. */
  start(args, more) {
    const id = `call-${(this.#calls += 1)}`;
    this.invoke(id, args, more);
    return id;
  }

  /** Runs a call to its end: its {completed} or {failed}. */
  run(args, more) {
    return this.result(this.start(args, more));
  }

  /** Returns the next message that `pick` likes (its value), taking it from the inbox; fails when the worker ends. */
  async next(pick) {
    for (;;) {
      const index = this.inbox.findIndex((message) => pick(message));
      if (index >= 0) return pick(this.inbox.splice(index, 1)[0]);
      const over = await Promise.race([this.ended.then(() => true), new Promise((resolve) => this.#waiters.push(() => resolve(false)))]);
      if (over && !this.inbox.some((message) => pick(message))) {
        throw new Error(`the worker has ended: ${this.stderr}`);
      }
    }
  }

  /** Returns {completed} or {failed} of the call. */
  result(requestId) {
    return this.next((message) => {
      const found = message.completed ?? message.failed;
      return found?.requestId === requestId ? message : undefined;
    });
  }

  /** Waits until standard output, or error, holds this text. */
  async printed(text, name = 'stdout') {
    while (!this[name].includes(text)) {
      const more = new Promise((resolve) => this.process[name].once('data', resolve));
      const over = await Promise.race([more.then(() => false), this.ended.then(() => true)]);
      if (over && !this[name].includes(text)) throw new Error(`not printed: ${text}`);
    }
  }

  async stop() {
    for (const client of this.#clients) client.close();
    this.process.kill('SIGTERM');
    return this.ended;
  }
}

/** Whether somebody accepts connections on the socket. */
function accepts(path) {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('error', () => resolve(false));
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
  });
}

/** Reads a Json message. */
export function read(message) {
  return message?.value?.length ? JSON.parse(Buffer.from(message.value).toString()) : undefined;
}

const PROTOCOL = protocol();

const MANIFEST = {
  format: 1, id: 'test', version: '1.0.0', kind: 'task', mode: 'plugin', language: 'node',
  limits: { diskBytes: 1024 * 1024 }, pool: { mode: 'warm', concurrency: 8 },
  elicitations: ['approve', 'policy'], delegations: ['classifier'],
};

/** Of the Node under test. */
export const NODE_VERSION = execFileSync(NODE, ['--version'], { encoding: 'utf8' }).trim().slice(1);

/** A service as @grpc/grpc-js takes it, by protobufjs: the shim's own codec must agree with it. */
function definition(name) {
  const found = {};
  const codec = (type) => ({ encode: (message) => type.encode(message).finish(), decode: (bytes) => type.decode(bytes) });
  for (const method of PROTOCOL.lookupService(`asp.plugin.v1.${name}`).methodsArray) {
    const [request, response] = [codec(method.resolvedRequestType), codec(method.resolvedResponseType)];
    found[method.name] = {
      path: `/asp.plugin.v1.${name}/${method.name}`,
      requestStream: method.requestStream === true, responseStream: method.responseStream === true,
      requestSerialize: request.encode, requestDeserialize: request.decode,
      responseSerialize: response.encode, responseDeserialize: response.decode,
    };
  }
  return found;
}
