//! The Session stream: `init` first, then calls by `request_id`. Answers and cancels go to their call; what names
//! an ended call is dropped. The stream's end cancels what runs. A message that breaks the protocol ends it.
import { CallError } from '../errors.mjs';
import { operatorLine } from '../logs.mjs';
import { holdSecrets } from '../namedSecrets.mjs';
import { Call } from '../call/call.mjs';
import { checkpointKey, delegationKey, inputKey } from '../call/ask.mjs';
import { Outgoing } from '../call/outgoing.mjs';
import { PREEMPT, SOFT } from '../wire/messages.mjs';
import { health } from './health.mjs';
import { observe } from './vitals.mjs';

/** Time a cancelled handler has for its cleanup when the worker goes. */
const CLEANUP_MS = 1000;

export class Session {
  #served;
  #out;
  #calls = new Map();
  #running = new Set();
  #initialised = false;
  #over;

  /**
   * @param grpcCall the bidirectional GrpcCall
   * @param served a Package
   * @param onEnd called once, with a fault's text or `undefined`, when nothing runs any more
   */
  constructor(grpcCall, served, onEnd) {
    this.#served = served;
    this.#out = new Outgoing(grpcCall);
    this.onEnd = onEnd;
    grpcCall.on('message', (message) => this.#receive(message));
    grpcCall.on('end', () => this.end());
    grpcCall.on('gone', (fault) => this.end(fault));
  }

  /** Cancels what runs, closes the stream and tells the owner. */
  async end(fault) {
    if (this.#over) return this.#over;
    this.#over = this.#finish(fault);
    return this.#over;
  }

  async #finish(fault) {
    const error = new CallError('CANCELLED', 'the worker is going');
    for (const call of this.#calls.values()) call.stop(error);
    let timer;
    const limit = new Promise((resolve) => {
      timer = setTimeout(resolve, CLEANUP_MS);
    });
    await Promise.race([Promise.all(this.#running), limit]);
    clearTimeout(timer);
    this.#out.close();
    this.onEnd(fault);
  }

  #receive(message) {
    if (this.#over) return;
    const kind = message.payload;
    if (kind === undefined) {
      this.#fault('a message without a payload that this version knows');
    } else if (this.#initialised !== (kind !== 'init')) {
      this.#fault(kind === 'init' ? 'a second init' : `${kind} before init`);
    } else {
      RECEIVERS[kind].call(this, message[kind]);
    }
  }

  #fault(text) {
    this.end(`protocol: ${text}`);
  }

  init(request) {
    this.#initialised = true;
    for (const [name, value] of Object.entries(request.env ?? {})) process.env[name] ??= value;
    holdSecrets(request.secrets);
    this.#out.send({ init: health(this.#served) });
    observe();
  }

  ping({ nonce }) {
    this.#out.send({ pong: { nonce } });
  }

  invoke(request) {
    const { requestId, taskId, primitive } = request;
    const plugin = this.#served.find(primitive);
    if (requestId === '') {
      this.#fault('an invoke without a request_id');
    } else if (this.#calls.has(requestId)) {
      // The first call keeps the id; a `failed` under it would end that one.
      operatorLine('duplicate request_id dropped', { requestId });
    } else if (this.#calls.size >= this.#served.concurrency) {
      this.#out.send({ failed: { requestId, taskId, code: 'OVERLOADED', message: 'the worker has no free place' } });
    } else if (!plugin || (plugin.manifest.definition !== 'tool' && !request.describe)) {
      const message = `the package does not serve the tool ${primitive}`;
      this.#out.send({ failed: { requestId, taskId, code: 'UNSUPPORTED', message } });
    } else {
      this.#run(new Call(request, plugin, this.#out));
    }
  }

  #run(call) {
    this.#calls.set(call.requestId, call);
    const running = call.run().finally(() => {
      this.#calls.delete(call.requestId);
      this.#running.delete(running);
    });
    this.#running.add(running);
  }

  cancel({ requestId, reason, mode }) {
    const call = this.#calls.get(requestId);
    if (!call) return;
    this.#out.send({ cancel: { requestId, accepted: true } });
    // The runtime's clock may be the first to say so.
    const isLate = reason === 'deadline' && mode !== SOFT && mode !== PREEMPT;
    const error = isLate
      ? new CallError('DEADLINE', 'the deadline of the call has passed')
      : new CallError('CANCELLED', reason || 'the call was cancelled');
    if (mode === SOFT) call.soften(error);
    else if (mode === PREEMPT) call.preempt(error);
    else call.stop(error);
  }

  userInput(answer) {
    this.#calls.get(answer.requestId)?.questions.answer(inputKey(answer.elicitationId), answer);
  }

  delegationResult(answer) {
    this.#calls.get(answer.requestId)?.questions.answer(delegationKey(answer.correlationId), answer);
  }

  checkpointAck(ack) {
    this.#calls.get(ack.requestId)?.checkpoints.answer(checkpointKey(ack.seq), ack);
  }

  storageAnswer(answer) {
    this.#calls.get(answer.requestId)?.storage.answer(answer);
  }
}

/** payload of a ClientMessage → what takes it */
const RECEIVERS = {
  init: Session.prototype.init,
  ping: Session.prototype.ping,
  invoke: Session.prototype.invoke,
  cancel: Session.prototype.cancel,
  userInput: Session.prototype.userInput,
  delegationResult: Session.prototype.delegationResult,
  checkpointAck: Session.prototype.checkpointAck,
  storageAnswer: Session.prototype.storageAnswer,
};
