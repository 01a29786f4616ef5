//! What a handler may ask while it runs: the user (`elicit`), another primitive or a model (`delegate`), and the
//! platform to keep its state (`checkpoint`). Only what the manifest declares; after a resume, answers that were
//! given before the loss are used instead of asking again.
import { createHash } from 'node:crypto';
import { CallError } from '../errors.mjs';
import { duration, json, parseJson } from '../wire/messages.mjs';
import { writeCapsule } from './capsule.mjs';

const ACTIONS = ['accept', 'decline', 'cancel'];
/** Delegations of one call: each leaves a few bytes until the call ends. */
const MAX_DELEGATIONS = 10_000;
const FIELD_TYPES = new Set(['string', 'boolean', 'number']);
const NO_USER = {
  unsupported: ['INPUT_UNSUPPORTED', 'nobody can be asked in this session'],
  expired: ['INPUT_EXPIRED', 'the question was not answered in time'],
  undeclared: ['UNDECLARED', 'the question is not declared'],
};

export function createQuestions(call) {
  const asked = new Map(call.capsule?.asked);
  const kept = keptAnswers(call.request.resume, asked);
  const delegated = new Map();
  return {
    async elicit(id, question = {}) {
      return elicit(call, { asked, kept, id, question });
    },
    async delegate(id, input, options = {}) {
      return delegate(call, { delegated, kept, id, input, options });
    },
    async converse(id, { messages, tools, toolChoice } = {}, options = {}) {
      const conversation = { messages };
      if (tools !== undefined) conversation.tools = tools;
      if (toolChoice !== undefined) conversation.toolChoice = { mode: toolChoice };
      return delegate(call, { delegated, kept, id, input: conversation, options, member: 'conversation' });
    },
    async checkpoint(state) {
      return checkpoint(call, asked, state);
    },
  };
}

/** The key under which the answer to an elicitation is awaited. */
export const inputKey = (elicitationId) => `elicitation ${elicitationId}`;
/** The key under which a delegation's result is awaited. */
export const delegationKey = (correlationId) => `delegation ${correlationId}`;
/** The key under which a checkpoint's acknowledgement is awaited. */
export const checkpointKey = (seq) => `checkpoint ${seq}`;

async function elicit(call, { asked, kept, id, question }) {
  call.checkYield();
  if (!call.plugin.manifest.elicitations.has(id)) throw because('UNDECLARED', `elicitation ${id} is not declared: add it to primitiveDependencies.elicitations of the spec`, 'undeclared');
  const earlier = kept.inputs.get(id)?.shift();
  const answer = earlier ?? (await ask(call, call.questions, inputKey(id), elicitation(call, id, question)));
  if (answer.error) {
    const [code, message] = NO_USER[answer.error] ?? ['INPUT_UNSUPPORTED', 'the question could not be asked'];
    throw because(code, message, answer.error);
  }
  // Only answers are kept by the platform, so only answers count.
  asked.set(id, (asked.get(id) ?? 0) + 1);
  const action = ACTIONS[answer.action] ?? 'cancel';
  return Object.freeze({ action, fields: action === 'accept' ? (parseJson(answer.fields) ?? {}) : {} });
}

function elicitation(call, id, { title = '', message = '', fields, schema, url = '' }) {
  const request = { requestId: call.requestId, taskId: call.taskId, elicitationId: id };
  request.title = String(title);
  request.message = String(message);
  request.url = String(url);
  if (fields !== undefined) request.fields = Object.entries(fields).map(readField);
  if (schema !== undefined) request.requestedSchema = json(schema, 'the schema');
  return { elicitation: request };
}

function readField([name, { type = 'string', required = true, label = '' }]) {
  if (!FIELD_TYPES.has(type)) throw new TypeError(`elicit: field ${name} must be a string, boolean or number`);
  return { name, type, required, label };
}

async function delegate(call, { delegated, kept, id, input, options, member = 'input' }) {
  call.checkYield();
  if (!call.plugin.manifest.delegations.has(id)) throw because('UNDECLARED', `delegation ${id} is not declared: add it to primitiveDependencies.delegations of the spec`, 'undeclared');
  const body = json(input, 'the input');
  const correlationId = correlation(delegated, id, body.value);
  const earlier = kept.results.get(correlationId);
  kept.results.delete(correlationId);
  const answer = earlier ?? (await askInTime(call, { id, correlationId, body, options, member }));
  if (answer.error) {
    throw delegationFailed(id, answer.error);
  }
  return parseJson(answer.result);
}

/** Made of what is asked and how often, so that after a resume the same question finds the answer it had. */
function correlation(delegated, id, body) {
  const question = `${id}.${createHash('sha256').update(body).digest('hex').slice(0, 16)}`;
  const times = (delegated.get(question) ?? 0) + 1;
  if (times === 1 && delegated.size >= MAX_DELEGATIONS) {
    throw new CallError('OVERLOADED', `more than ${MAX_DELEGATIONS} delegations in a call`);
  }
  delegated.set(question, times);
  return times === 1 ? question : `${question}.${times}`;
}

async function askInTime(call, { id, correlationId, body, options, member }) {
  const { requestId, taskId } = call;
  const delegation = { requestId, taskId, correlationId, delegateId: id, [member]: body };
  const key = delegationKey(correlationId);
  const seconds = options.timeoutSeconds;
  if (seconds === undefined) return ask(call, call.questions, key, { delegation });
  if (!(Number.isFinite(seconds) && seconds > 0)) throw new TypeError('delegate: timeoutSeconds must be above 0');
  delegation.timeout = duration(seconds);
  const expired = delegationFailed(id, 'expired');
  const timer = setTimeout(() => call.questions.refuse(key, expired), Math.min(seconds * 1000, 2 ** 31 - 1));
  try {
    return await ask(call, call.questions, key, { delegation });
  } finally {
    clearTimeout(timer);
  }
}

async function checkpoint(call, asked, state) {
  call.checkStep();
  const capsule = writeCapsule(state, asked);
  call.seq += 1;
  const seq = call.seq;
  const message = { checkpoint: { requestId: call.requestId, seq, capsule } };
  const { error } = await ask(call, call.checkpoints, checkpointKey(seq), message);
  if (error) throw because('CHECKPOINT_FAILED', `checkpoint: ${error}`, error);
  call.saved = true;
  call.checkYield();
}

/** After `failed: ` the platform says more, in the words of whoever was asked. */
function delegationFailed(id, said) {
  return because('DELEGATION_FAILED', `delegation ${id}: ${said}`, said.startsWith('failed: ') ? 'failed' : said);
}

/** An error whose reason the handler can read, and the caller in the details. */
function because(code, message, reason) {
  return new CallError(code, message, { reason, details: { reason } });
}

async function ask(call, questions, key, message) {
  const answer = questions.open(key);
  call.out.send(message);
  return answer;
}

/** The answers of a Resume that the checkpoint does not hold yet. */
function keptAnswers(resume, asked) {
  const inputs = new Map();
  for (const answer of resume?.userInputs ?? []) {
    const list = inputs.get(answer.elicitationId) ?? [];
    inputs.set(answer.elicitationId, [...list, answer]);
  }
  for (const [id, list] of inputs) inputs.set(id, list.slice(asked.get(id) ?? 0));
  const results = new Map((resume?.delegationResults ?? []).map((answer) => [answer.correlationId, answer]));
  return { inputs, results };
}
