//! What a worker serves: every method asks for the token; there is one Session in a worker's life; the kinds of its
//! primitives decide which services exist beside ToolPlugin.
import { GrpcServer, STATUS } from '../wire/grpc.mjs';
import { methods } from '../wire/messages.mjs';
import { health } from './health.mjs';
import { promptHandlers } from './prompt.mjs';
import { resourceHandlers } from './resource.mjs';
import { Session } from './session.mjs';
import { vitals } from './vitals.mjs';

/** Time for the last messages to leave when the session ends: the peer may be gone already. */
const FLUSH_MS = 300;

export class WorkerServer {
  #server;
  #served;
  #onEnd;
  #session;

  /** @param served a Package; @param onEnd called once when the Session has ended: with a fault's text, or `undefined` */
  constructor(served, token, onEnd) {
    this.#served = served;
    this.#onEnd = onEnd;
    this.#server = new GrpcServer((authorization) => token.matches(authorization));
    this.#add('ToolPlugin', { Session: (call) => this.#open(call), Health: () => ({ ...health(served), vitals: vitals() }) });
    if (served.ofKind('resource').length > 0) this.#add('ResourcePlugin', resourceHandlers(served));
    if (served.ofKind('prompt').length > 0) this.#add('PromptPlugin', promptHandlers(served));
  }

  #add(service, handlers) {
    for (const method of methods(service)) this.#server.add(method, handlers[method.name]);
  }

  /** Listens on the socket; resolves when it accepts connections. */
  listen(path) {
    return this.#server.listen(path);
  }

  /** Ends the Session as its client's end does. */
  async end() {
    if (this.#session) await this.#session.end();
    else await this.#close(undefined);
  }

  async #close(fault) {
    const timer = setTimeout(() => this.#onEnd(fault), FLUSH_MS);
    await this.#server.close();
    clearTimeout(timer);
    this.#onEnd(fault);
  }

  #open(call) {
    if (this.#session) call.finish(STATUS.ALREADY_EXISTS, 'this worker has its session');
    else this.#session = new Session(call, this.#served, (fault) => this.#close(fault));
  }
}
