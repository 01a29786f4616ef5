//! The gRPC server on the worker's socket. Every method asks for the token; there is one Session in a worker's
//! life; a plugin's kind decides which services exist beside ToolPlugin.
import * as grpc from '@grpc/grpc-js';
import { MAX_MESSAGE_BYTES, service } from '../wire/messages.mjs';
import { health } from './health.mjs';
import { promptMethods } from './prompt.mjs';
import { resourceMethods } from './resource.mjs';
import { Session } from './session.mjs';

const { status } = grpc;
/** Session, Health and the reads of a resource or prompt at one time. */
const MAX_STREAMS = 128;
/** Time for the last messages to leave when the session ends: the peer may be gone already. */
const FLUSH_MS = 300;

export class WorkerServer {
  #server;
  #plugin;
  #onEnd;
  #session;

  /** @param onEnd called once when the Session has ended: with a fault's text, or `undefined` */
  constructor(plugin, token, onEnd) {
    this.#plugin = plugin;
    this.#onEnd = onEnd;
    this.#server = new grpc.Server({
      'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
      'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
      'grpc.max_concurrent_streams': MAX_STREAMS,
      'grpc.enable_channelz': 0,
      interceptors: [authorization(token)],
    });
    this.#addServices();
  }

  #addServices() {
    const { definition, manifest } = this.#plugin;
    this.#server.addService(service('ToolPlugin'), {
      Session: (stream) => this.#open(stream),
      Health: (_call, answer) => answer(null, health(this.#plugin)),
    });
    if (manifest.definition === 'resource') {
      this.#server.addService(service('ResourcePlugin'), resourceMethods(definition, this.#plugin));
    }
    if (manifest.definition === 'prompt') {
      this.#server.addService(service('PromptPlugin'), promptMethods(definition, this.#plugin));
    }
  }

  /** Listens on the socket; resolves when it accepts connections. */
  listen(path) {
    return new Promise((resolve, reject) => {
      const credentials = grpc.ServerCredentials.createInsecure();
      this.#server.bindAsync(`unix:${path}`, credentials, (error) => (error ? reject(error) : resolve()));
    });
  }

  /** Ends the Session as its client's end does. */
  async end() {
    if (this.#session) await this.#session.end();
    else this.#close(undefined);
  }

  #close(fault) {
    const timer = setTimeout(() => this.#onEnd(fault), FLUSH_MS);
    this.#server.tryShutdown(() => {
      clearTimeout(timer);
      this.#onEnd(fault);
    });
  }

  #open(stream) {
    if (this.#session) {
      const refusal = Object.assign(new Error('this worker has its session'), { code: status.ALREADY_EXISTS });
      stream.emit('error', refusal);
      return;
    }
    this.#session = new Session(stream, this.#plugin, (fault) => this.#close(fault));
  }
}

function authorization(token) {
  return (_method, call) =>
    new grpc.ServerInterceptingCall(call, {
      start(next) {
        const listener = new grpc.ServerListenerBuilder().withOnReceiveMetadata((metadata, pass) => {
          if (token.matches(metadata.get('authorization'))) pass(metadata);
          else call.sendStatus({ code: status.UNAUTHENTICATED, details: 'no valid token' });
        });
        next(listener.build());
      },
    });
}
