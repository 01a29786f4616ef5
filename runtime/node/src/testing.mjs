//! A context for unit tests of a handler, without a worker: the real one over a call that keeps what is sent and
//! answers by what the test has given. So every bound, code and conversion is the worker's own.
import { tmpdir } from 'node:os';
import { CallError } from './errors.mjs';
import { Call } from './call/call.mjs';
import { checkpointKey, delegationKey, inputKey } from './call/ask.mjs';
import { readCapsule, writeCapsule } from './call/capsule.mjs';
import { createContext } from './call/context.mjs';
import { FakeStorage } from './fakeStorage.mjs';
import { refuse } from './namedSecrets.mjs';
import { Secret } from './secret.mjs';
import { LOG_LEVELS, parseJson } from './wire/messages.mjs';

export { callTyped as callTool } from './typed.mjs';
export { FakeStorage };

const ACTIONS = { accept: 0, decline: 1, cancel: 2 };
/** Words in place of an answer: nobody could be asked. */
const NO_ANSWER = new Set(['expired', 'unsupported', 'too_large']);
const ARTIFACT_BYTES = 256 * 1024 * 1024;

/**
 * Returns a context that keeps what the handler tells in `recorded` and can be stopped with `cancel` and `expire`.
 * @param options `answers`: id → the fields of an accepted form, or 'decline', 'cancel', 'expired', 'unsupported';
 *   `delegations`: id → the result, or the word that says why there is none. What is not in them is undeclared.
 *   Facts: requestId, taskId, caller, deadline, budget, token, idempotencyKey, attrs, workDir, `resume`, the state
 *   that an earlier execution saved, `secrets`, the granted ones by name, and `storage`, a FakeStorage that other calls share.
 */
export function fakeContext({ answers = {}, delegations = {}, ...given } = {}) {
  const recorded = { progress: [], chunks: [], artifacts: [], logs: [], statuses: [], changedResources: [], completedElicitations: [], checkpoints: [], questions: [], delegations: [] };
  const out = new Recorder(recorded, answers, delegations, given.storage ?? new FakeStorage());
  const call = new Call(request(given), plugin(answers, delegations, given.workDir ?? tmpdir()), out);
  call.capsule = readCapsule(call.request.resume);
  call.saved = call.capsule !== undefined;
  out.call = call;
  return withSwitches(createContext(call), call, recorded, given.secrets ?? {});
}

function request({ requestId = 'call-1', taskId = 'task-1', caller, deadline, budget, token, resume, idempotencyKey, attrs }) {
  const ctx = { tenantId: caller?.tenant ?? 'acme', userId: caller?.user ?? 'alice', sessionId: caller?.session ?? '' };
  const ms = deadline?.getTime();
  return {
    requestId, taskId, ctx, budget, idempotencyKey, attrs, accessToken: token,
    deadline: ms === undefined ? undefined : { seconds: Math.floor(ms / 1000), nanos: (ms % 1000) * 1_000_000 },
    resume: resume === undefined ? undefined : { capsule: writeCapsule(resume, new Map()), seq: 1, attempt: 2, resumeToken: 'resume' },
  };
}

function plugin(answers, delegations, workDirectory) {
  const accept = () => undefined;
  const declared = (known) => ({ has: (id) => Object.hasOwn(known, id) });
  return {
    manifest: { elicitations: declared(answers), delegations: declared(delegations), artifactBytes: ARTIFACT_BYTES },
    schemas: { input: accept, output: accept, artifact: accept },
    workDirectory,
  };
}

function withSwitches(context, call, recorded, secrets) {
  const switches = {
    recorded,
    secret: (name) => (Object.hasOwn(secrets, name) ? new Secret(secrets[name]) : refuse(name)),
    /** 'hard' fires the signal; 'soft' and 'preempt' end the handler at its next question or checkpoint. */
    cancel(mode = 'hard', reason = 'the call was cancelled') {
      const error = new CallError('CANCELLED', reason);
      if (mode === 'soft') call.soften(error);
      else if (mode === 'preempt') call.preempt(error);
      else call.stop(error);
    },
    /** The deadline passes. */
    expire() {
      call.stop(new CallError('DEADLINE', 'the deadline of the call has passed'));
    },
  };
  // Getters stay getters: `cancelled` changes.
  const properties = { ...Object.getOwnPropertyDescriptors(context), ...Object.getOwnPropertyDescriptors(switches) };
  return Object.freeze(Object.defineProperties({}, properties));
}

/** Stands for the Session's way out: keeps each message in the author's words, and answers what asks. */
class Recorder {
  call;
  #recorded;
  #answers;
  #delegations;
  #storage;
  #bytes = new Map();

  constructor(recorded, answers, delegations, storage) {
    this.#recorded = recorded;
    this.#answers = answers;
    this.#delegations = delegations;
    this.#storage = storage;
  }

  send(message) {
    const [[kind, body]] = Object.entries(message);
    this[`_${kind}`](body);
  }

  sendLatest(_key, message) {
    this.send(message);
  }

  sendLog(message) {
    this.send(message);
  }

  async room() {}

  _progress({ percent, message, gauges }) {
    this.#recorded.progress.push({ percent, message, gauges });
  }

  _chunk({ text, structured }) {
    this.#recorded.chunks.push(structured === undefined ? text : parseJson(structured));
  }

  _status({ phase, metadata }) {
    this.#recorded.statuses.push({ phase, metadata: parseJson(metadata) });
  }

  _elicitationCompleted({ elicitationId }) {
    this.#recorded.completedElicitations.push(elicitationId);
  }

  _resourceChanged({ uri }) {
    this.#recorded.changedResources.push(uri);
  }

  _log({ level, severity, message }) {
    const name = severity || Object.keys(LOG_LEVELS).find((word) => LOG_LEVELS[word] === level).toLowerCase();
    this.#recorded.logs.push({ level: name, message });
  }

  _artifactData({ uri, data }) {
    this.#bytes.set(uri, [...(this.#bytes.get(uri) ?? []), data]);
  }

  _artifact({ uri, type, contentType, description, sha256 }) {
    const data = sha256 === undefined ? undefined : Buffer.concat(this.#bytes.get(uri) ?? []);
    this.#recorded.artifacts.push({ uri, type, contentType, description, data });
  }

  _checkpoint({ seq, capsule }) {
    this.#recorded.checkpoints.push(readCapsule({ capsule }).state);
    this.call.checkpoints.answer(checkpointKey(seq), { seq, error: '' });
  }

  _storageRequested(asked) {
    const { tenantId, userId } = this.call.request.ctx;
    this.call.storage.answer(this.#storage.answer({ tenant: tenantId, user: userId }, asked));
  }

  _elicitation({ elicitationId: id, title, message, fields, requestedSchema, url }) {
    this.#recorded.questions.push({ id, title, message, fields, schema: parseJson(requestedSchema), url });
    const given = this.#answers[id];
    const answer = { action: ACTIONS[given] ?? ACTIONS.accept };
    if (NO_ANSWER.has(given)) answer.error = given;
    else if (typeof given !== 'string') answer.fields = text(given);
    this.call.questions.answer(inputKey(id), answer);
  }

  _delegation({ correlationId, delegateId: id, input, conversation }) {
    this.#recorded.delegations.push({ id, input: parseJson(conversation ?? input) });
    const given = this.#delegations[id];
    const answer = typeof given === 'string' ? { error: given } : { result: text(given) };
    this.call.questions.answer(delegationKey(correlationId), answer);
  }
}

/** A `Json` message. */
function text(value) {
  return { value: Buffer.from(JSON.stringify(value)) };
}
