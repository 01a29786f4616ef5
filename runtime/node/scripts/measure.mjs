//! Measures a worker on this machine: from exec to the socket accepting, memory when idle, time of a call over one
//! Session. Prints JSON. `node scripts/measure.mjs [starts] [calls]`; ASP_NODE_BIN names the Node of the workers.
import { readFileSync } from 'node:fs';
import { startWorker } from '../tests/harness.mjs';

const [starts = 30, calls = 5000] = process.argv.slice(2).map(Number);
const IN_FLIGHT = 8;

const coldStart = [];
for (let n = 0; n < starts; n += 1) {
  const from = performance.now();
  const worker = await startWorker('acts.mjs', schemas());
  coldStart.push(performance.now() - from);
  await worker.stop();
}

const worker = await (await startWorker('acts.mjs', schemas())).session();
const idle = memory(worker.process.pid);
const settled = new Map();
worker.stream.on('data', ({ completed }) => settled.get(completed?.requestId)?.());
await callsOneByOne(500);
const one = await callsOneByOne(calls);
const throughput = await callsAtOnce(calls);
const busy = memory(worker.process.pid);
await worker.stop();

console.log(JSON.stringify({
  node: process.env.ASP_NODE_BIN ?? process.version,
  coldStartMs: spread(coldStart), idle, afterCalls: busy,
  callMs: spread(one), callsPerSecond: Math.round(throughput), inFlight: IN_FLIGHT,
}, null, 1));

/** What an ordinary tool has: both schemas are compiled at start and checked in each call. */
function schemas() {
  const value = { type: 'object', properties: { value: { type: 'string', format: 'date-time' } } };
  return { inputSchema: { ...value, required: ['act'] }, outputSchema: { type: 'object', required: ['echo'] } };
}

function memory(pid) {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  const mib = (text, name) => Math.round(Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(text)[1]) / 102.4) / 10;
  return { rssMiB: mib(status, 'VmRSS'), privateMiB: mib(rollup, 'Private_Dirty'), threads: Number(/^Threads:\s+(\d+)/m.exec(status)[1]) };
}

function call(id) {
  const done = new Promise((resolve) => settled.set(id, resolve));
  worker.invoke(id, { act: 'echo', value: '2026-01-02T03:04:05Z' });
  return done.finally(() => settled.delete(id));
}

async function callsOneByOne(count) {
  const took = [];
  for (let n = 0; n < count; n += 1) {
    const from = performance.now();
    await call(`o${n}`);
    took.push(performance.now() - from);
  }
  worker.inbox.length = 0;
  return took;
}

async function callsAtOnce(count) {
  const from = performance.now();
  let next = 0;
  const lane = async () => {
    while (next < count) await call(`p${(next += 1)}`);
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, lane));
  return (count * 1000) / (performance.now() - from);
}

function spread(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share) => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] * 100) / 100;
  return { n: sorted.length, p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1) };
}
