//! Where a plugin's words go: `console` within a call becomes log lines of that call, everything else lines of
//! standard output and error.
import { AsyncLocalStorage } from 'node:async_hooks';
import { formatWithOptions } from 'node:util';
import { Console } from 'node:console';

/** The running call, wherever its promises lead. */
const current = new AsyncLocalStorage();

const LEVELS = { debug: 'DEBUG', log: 'INFO', info: 'INFO', warn: 'WARN', error: 'ERROR', trace: 'TRACE' };
const FORMAT = { colors: false, depth: 4, maxStringLength: 16 * 1024 };

/** Runs the function as part of the call: `call.log(level, text)` takes its console output. */
export function within(call, run) {
  return current.run(call, run);
}

/**
 * Makes a write to standard output or error wait until it is written. Else Node keeps what a plugin writes faster than
 * it is read, and the process ends with a full heap or by an error that nobody listens for (ENOBUFS). Worker threads,
 * which a plugin may start before Node 22.15, write through this thread and are not held so.
 */
export function writeInStep() {
  for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);
}

/** Replaces the global console. */
export function captureConsole() {
  const captured = new Console({ stdout: process.stdout, stderr: process.stderr });
  for (const [method, level] of Object.entries(LEVELS)) {
    captured[method] = (...args) => write(level, formatWithOptions(FORMAT, ...args));
  }
  globalThis.console = captured;
}

function write(level, text) {
  const call = current.getStore();
  if (call?.log(level, text)) return;
  const stream = level === 'WARN' || level === 'ERROR' ? process.stderr : process.stdout;
  stream.write(`${text}\n`);
}

/** Writes one line for the operator: the shim's own words, and what must not reach a caller. */
export function operatorLine(message, fields = {}) {
  process.stderr.write(`${JSON.stringify({ shim: message, ...fields })}\n`);
}
