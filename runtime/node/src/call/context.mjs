//! The context a handler is given: facts of the call, what it may tell (progress, chunks, artifacts, logs,
//! status), and, in ask.mjs and storage.mjs, what it may ask. After a hard cancel everything but
//! `log` throws.
import { findSecret } from '../namedSecrets.mjs';
import { Secret } from '../secret.mjs';
import { LOG_LEVEL_NAMES, STATUS_WORKING, json, now, textPieces, truncate } from '../wire/messages.mjs';
import { emitArtifact } from './artifact.mjs';
import { createQuestions } from './ask.mjs';
import { createStorage } from './storage.mjs';

/** Names in `gauges`: they become metric series of an observer. */
const MAX_GAUGES = 32;
/** A progress message or phase: a line, not a document. */
const MAX_NOTE_BYTES = 4096;

export function createContext(call) {
  const { signal } = call;
  const context = {
    ...facts(call),
    ...events(call),
    ...createQuestions(call),
    storage: createStorage(call),
    secret: findSecret,
    signal,
    get cancelled() {
      return call.cancelled;
    },
    get preempted() {
      return call.preempted;
    },
  };
  return Object.freeze(context);
}

function facts(call) {
  const { request } = call;
  const { resume } = request;
  return {
    requestId: call.requestId,
    taskId: call.taskId,
    caller: caller(request.ctx),
    deadline: call.deadlineMs === undefined ? undefined : new Date(call.deadlineMs),
    budget: request.budget,
    token: request.accessToken ? new Secret(request.accessToken) : undefined,
    idempotencyKey: request.idempotencyKey || undefined,
    attrs: Object.freeze({ ...request.attrs }),
    workDir: call.workDirectory,
    resume: resume
      ? Object.freeze({
          state: call.capsule?.state,
          seq: resume.seq,
          attempt: resume.attempt,
          token: resume.resumeToken ? new Secret(resume.resumeToken) : undefined,
        })
      : undefined,
  };
}

/** Returns {tenant, user, session} of a `Context` message. */
export function caller(ctx) {
  return Object.freeze({ tenant: ctx?.tenantId ?? '', user: ctx?.userId ?? '', session: ctx?.sessionId ?? '' });
}

function events(call) {
  const { requestId, taskId, out } = call;
  return {
    progress(percent, message = '', gauges = {}) {
      call.check();
      if (!Number.isFinite(percent)) throw new TypeError('progress: percent must be a number');
      const bounded = Math.min(100, Math.max(0, percent));
      const note = truncate(String(message), MAX_NOTE_BYTES);
      const progress = { requestId, taskId, percent: bounded, message: note, at: now(), gauges: readGauges(gauges) };
      out.sendLatest(requestId, { progress });
    },
    async chunk(part) {
      call.check();
      const text = typeof part === 'string' ? part : '';
      const structured = typeof part === 'string' ? undefined : json(part, 'the chunk');
      await out.room();
      for (const piece of textPieces(text)) {
        call.check();
        out.send({ chunk: { requestId, taskId, text: piece, structured } }, piece.length + (structured?.value.length ?? 0));
        await out.room();
      }
    },
    async artifact(spec) {
      call.check();
      return emitArtifact(call, spec);
    },
    log(level, message) {
      const word = String(level).toUpperCase();
      if (!LOG_LEVEL_NAMES.includes(word)) {
        const known = LOG_LEVEL_NAMES.join(', ').toLowerCase();
        throw new TypeError(`log: unknown level ${word.slice(0, 20)}; the levels are ${known}`);
      }
      call.log(word, String(message));
    },
    elicitationCompleted(id) {
      call.check();
      out.send({ elicitationCompleted: { requestId, elicitationId: String(id) } });
    },
    resourceChanged(uri) {
      call.check();
      out.send({ resourceChanged: { requestId, uri: String(uri) } });
    },
    status(phase, metadata) {
      call.check();
      const status = { requestId, taskId, status: STATUS_WORKING, phase: truncate(String(phase), MAX_NOTE_BYTES) };
      if (metadata !== undefined) status.metadata = json(metadata, 'the metadata');
      out.send({ status }, status.metadata?.value.length);
    },
  };
}

function readGauges(gauges) {
  const entries = Object.entries(gauges);
  if (entries.length > MAX_GAUGES) throw new TypeError(`progress: more than ${MAX_GAUGES} gauges`);
  for (const [name, value] of entries) {
    if (!Number.isFinite(value)) throw new TypeError(`progress: gauge ${name} is not a number`);
  }
  return gauges;
}
