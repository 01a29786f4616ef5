//! What resource and prompt handlers have in common: a context without events, a signal that fires when the
//! caller goes or the deadline passes, and the gRPC status of what they throw.
import { CallError, isCallError } from '../errors.mjs';
import { caller } from '../call/context.mjs';
import { failureText, failureTrace } from '../failures.mjs';
import { operatorLine } from '../logs.mjs';
import { findSecret } from '../namedSecrets.mjs';
import { Secret } from '../secret.mjs';
import { STATUS } from '../wire/grpc.mjs';
import { epochMs } from '../wire/messages.mjs';
import { createAsking } from './asking.mjs';

/** code of a CallError → gRPC status; everything else is UNKNOWN */
const CODES = {
  INVALID_ARGUMENT: STATUS.INVALID_ARGUMENT,
  NOT_FOUND: STATUS.NOT_FOUND,
  PERMISSION_DENIED: STATUS.PERMISSION_DENIED,
  UNSUPPORTED: STATUS.UNIMPLEMENTED,
  CANCELLED: STATUS.CANCELLED,
  DEADLINE: STATUS.DEADLINE_EXCEEDED,
};
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Runs `work(context)` for a request; rejects with an error that has a gRPC `code`. `gone` fires when the caller left. */
export async function serveRead(request, gone, work) {
  const { result } = await serveAsking(request, gone, async (context) => ({ result: await work(context) }));
  return result;
}

/** The same for a handler of `plugin` that may ask: resolves to {result}, or to {asked} when it asks first. */
export async function serveAsking(request, gone, work, plugin) {
  const abort = new AbortController();
  const deadlineMs = epochMs(request.deadline);
  const timer = deadlineMs === undefined ? undefined : deadlineTimer(abort, deadlineMs);
  gone.addEventListener('abort', () => abort.abort(new CallError('CANCELLED', 'the caller has gone')));
  const { asked, ...questions } = plugin ? createAsking(request, plugin) : {};
  const context = Object.freeze({
    ...questions,
    requestId: request.requestId,
    caller: caller(request.ctx),
    deadline: deadlineMs === undefined ? undefined : new Date(deadlineMs),
    token: request.accessToken ? new Secret(request.accessToken) : undefined,
    attrs: Object.freeze({ ...request.attrs }),
    secret: findSecret,
    signal: abort.signal,
  });
  try {
    abort.signal.throwIfAborted();
    const working = work(context);
    if (!asked) return await working;
    const ended = await Promise.race([working, asked.then((questionsOfOne) => ({ asked: questionsOfOne }))]);
    if (ended.asked) {
      // Nobody waits for this run any more.
      working.catch(() => {});
      abort.abort(new CallError('CANCELLED', 'the handler asks, and is called again'));
    }
    return ended;
  } catch (thrown) {
    throw refusal(abort.signal.aborted ? abort.signal.reason : thrown, request.requestId);
  } finally {
    clearTimeout(timer);
  }
}

function deadlineTimer(abort, deadlineMs) {
  const expire = () => abort.abort(new CallError('DEADLINE', 'the deadline of the call has passed'));
  const left = deadlineMs - Date.now();
  if (left > 0) return setTimeout(expire, Math.min(left, MAX_TIMER_MS));
  expire();
  return undefined;
}

function refusal(error, requestId) {
  if (isCallError(error)) {
    const known = CODES[error.code];
    // A code of the plugin's own has no status that says it.
    const message = known === undefined ? `${error.code}: ${error.message}` : error.message;
    return Object.assign(new Error(message), { code: known ?? STATUS.UNKNOWN });
  }
  operatorLine('handler failed', { requestId, error: failureTrace(error) });
  return Object.assign(new Error(failureText(error)), { code: STATUS.INTERNAL });
}

