//! One call, from its invoke to its one result. It ends when its handler has settled, never before: a call that
//! was cancelled and still runs must not look finished. What the handler sends after the end is dropped.
import { CallError, isCallError, isCancelled, isToolError } from '../errors.mjs';
import { failureText, failureTrace, invalidText } from '../failures.mjs';
import { operatorLine, within } from '../logs.mjs';
import { readArguments } from '../schema.mjs';
import { callTyped } from '../typed.mjs';
import { MAX_LOG_BYTES, epochMs, json, logLevel, now, truncate } from '../wire/messages.mjs';
import { createContext } from './context.mjs';
import { Questions } from './questions.mjs';
import { StorageRequests } from './storage.mjs';
import { readCapsule } from './capsule.mjs';

const RESULT = Symbol.for('asp.plugin.result');
/** setTimeout counts in 32 bits. */
const MAX_TIMER_MS = 2 ** 31 - 1;
/** Artifacts of one call: the list must stay a list somebody can read. */
const MAX_ARTIFACTS = 1024;

export class Call {
  #abort = new AbortController();
  #timer;
  #ended = false;
  /** Why the handler must stop, once it must. */
  #stopped;
  /** Why it should stop at the end of the step in hand. */
  #softened;
  /** That it should yield after a checkpoint. */
  #preempted;

  questions = new Questions();
  checkpoints = new Questions();
  storage = new StorageRequests();
  artifactNames = new Set();
  /** Whether a checkpoint of this call is stored, by this worker or a former one. */
  saved = false;

  /**
   * @param request an InvokeRequest
   * @param plugin {manifest, schemas, definition, workDirectory}
   * @param out the session's Outgoing
   */
  constructor(request, plugin, out) {
    this.request = request;
    this.requestId = request.requestId;
    this.taskId = request.taskId;
    this.plugin = plugin;
    this.out = out;
    this.schemas = plugin.schemas;
    this.workDirectory = plugin.workDirectory;
    this.limits = { artifacts: MAX_ARTIFACTS, artifactBytes: plugin.manifest.artifactBytes };
    this.deadlineMs = epochMs(request.deadline);
    this.seq = request.resume?.seq ?? 0;
  }

  /** Runs the call; resolves after its result was sent. Never rejects. */
  async run() {
    try {
      if (this.request.describe) {
        await this.#describe();
        return;
      }
      this.capsule = readCapsule(this.request.resume);
      this.saved = this.capsule !== undefined;
      const args = readArguments(this.request.arguments, this.schemas);
      this.#startClock();
      const context = createContext(this);
      const returned = await within(this, () => callTyped(this.plugin.definition, args, context));
      this.#succeed(returned);
    } catch (error) {
      this.#fail(error);
    } finally {
      clearTimeout(this.#timer);
    }
  }

  get signal() {
    return this.#abort.signal;
  }

  get cancelled() {
    return this.#stopped !== undefined || this.#softened !== undefined;
  }

  get preempted() {
    return this.#preempted !== undefined;
  }

  /** Throws when the call has ended or must stop now. */
  check() {
    if (this.#ended) throw new CallError('CANCELLED', 'the call has ended');
    if (this.#stopped) throw this.#stopped;
  }

  /** Throws also after a soft cancel: the step in hand ends where the handler asks or saves. */
  checkStep() {
    this.check();
    if (this.#softened) throw this.#softened;
  }

  /** Throws when a preempted call can yield here: it will go on from its checkpoint. */
  checkYield() {
    this.checkStep();
    if (this.#preempted && this.saved) throw this.#preempted;
  }

  /** Stops now: the signal fires, questions are refused, every further use of the context throws. */
  stop(error) {
    if (this.#ended || this.#stopped) return;
    this.#stopped = error;
    this.#refuseQuestions(error);
    this.storage.refuseAll(error);
    this.#abort.abort(error);
  }

  /** Asks to stop after the step in hand; what the handler returns then is its result. */
  soften(error) {
    if (this.#ended || this.cancelled) return;
    this.#softened = error;
    this.#refuseQuestions(error);
  }

  /** Asks to yield: at once where it waits for an answer and has a checkpoint, else at the next checkpoint. */
  preempt(error) {
    if (this.#ended || this.cancelled || this.#preempted) return;
    this.#preempted = error;
    if (this.saved) this.questions.refuseAll(error);
  }

  /** Sends a log line; returns false when the call has ended and somebody else should take it. */
  log(level, message) {
    if (this.#ended) return false;
    const text = truncate(message, MAX_LOG_BYTES);
    const { requestId, taskId } = this;
    this.out.sendLog({ log: { requestId, taskId, ...logLevel(level), message: text, at: now() } }, text.length);
    return true;
  }

  /** Answers what the types say; loaded only here, when a plugin is built. */
  async #describe() {
    const { describe: description } = await import('../describe.mjs');
    const output = json(description(this.plugin.definition), 'the description');
    this.#end({ completed: { requestId: this.requestId, taskId: this.taskId, output } });
  }

  #startClock() {
    if (this.deadlineMs === undefined) return;
    const left = this.deadlineMs - Date.now();
    const error = new CallError('DEADLINE', 'the deadline of the call has passed');
    if (left <= 0) throw error;
    this.#timer = setTimeout(() => this.stop(error), Math.min(left, MAX_TIMER_MS));
  }

  #refuseQuestions(error) {
    this.questions.refuseAll(error);
    this.checkpoints.refuseAll(error);
  }

  #succeed(returned) {
    // After a soft cancel a result counts: it is what the step in hand came to.
    if (this.#stopped) throw this.#stopped;
    const own = returned?.[RESULT] === true;
    const { output, content, isError, meta } = own ? returned : { output: returned };
    if (!isError) {
      const fault = this.schemas.output(output === undefined ? null : output);
      if (fault) throw new CallError('INVALID_OUTPUT', `result: ${fault.text}`, { details: { pointer: fault.pointer } });
    }
    const completed = { requestId: this.requestId, taskId: this.taskId, isError: isError === true };
    if (!isError || output !== undefined) completed.output = json(output, 'the result', 'INVALID_OUTPUT');
    if (content !== undefined) completed.content = json(content, 'the content', 'INVALID_OUTPUT');
    if (meta !== undefined) completed.meta = json(meta, '_meta', 'INVALID_OUTPUT');
    this.#end({ completed });
  }

  #fail(error) {
    if (this.#stopped === undefined && this.#softened === undefined && isToolError(error)) {
      const content = json([{ type: 'text', text: truncate(error.message, MAX_LOG_BYTES) }], 'the message');
      this.#end({ completed: { requestId: this.requestId, taskId: this.taskId, isError: true, content } });
      return;
    }
    const yielded = this.#preempted !== undefined && !this.cancelled && this.saved && isCancelled(error);
    this.#end({ failed: { requestId: this.requestId, taskId: this.taskId, yielded, ...this.#failure(error) } });
  }

  #failure(thrown) {
    const error = this.#stopped ?? this.#softened ?? thrown;
    if (isCallError(error)) {
      // What kept a value from being JSON is an exception of the engine's or of the plugin's own toJSON.
      const cause = error.code === 'INVALID_OUTPUT' ? error.cause : undefined;
      if (cause !== undefined) operatorLine(error.message, { requestId: this.requestId, error: truncate(failureTrace(cause), MAX_LOG_BYTES) });
      const failure = { code: error.code, message: truncate(invalidText(error.message, cause), MAX_LOG_BYTES) };
      return error.details === undefined ? failure : { ...failure, details: details(error) };
    }
    // The stack is for the operator: the caller, who reads log lines too, must not see it.
    operatorLine('handler failed', { requestId: this.requestId, error: truncate(failureTrace(error), MAX_LOG_BYTES) });
    return { code: 'INTERNAL', message: truncate(failureText(error), MAX_LOG_BYTES) };
  }

  #end(message) {
    this.out.flushLatest(this.requestId);
    this.#ended = true;
    this.#refuseQuestions(new CallError('CANCELLED', 'the call has ended'));
    const body = message.completed?.output?.value.length ?? 0;
    this.out.send(message, body);
  }
}

function details(error) {
  try {
    return json(error.details, 'the details');
  } catch {
    return undefined;
  }
}
