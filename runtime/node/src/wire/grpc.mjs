//! A gRPC server on a Unix socket over Node's own HTTP/2: unary, server-streaming and bidirectional methods,
//! without compression, reflection or deadlines of its own (the protocol carries them). It is here because loading
//! @grpc/grpc-js is another third of a worker's start and ten megabytes; the tests talk to it with that library.
//! Source: grpc.io PROTOCOL-HTTP2.
import { Buffer } from 'node:buffer';
import { EventEmitter, once } from 'node:events';
import * as http2 from 'node:http2';
import { FrameError, FrameReader, frame } from './frames.mjs';
import { MAX_MESSAGE_BYTES } from './messages.mjs';

/** gRPC's status codes, those that are used. */
export const STATUS = {
  OK: 0, CANCELLED: 1, UNKNOWN: 2, INVALID_ARGUMENT: 3, DEADLINE_EXCEEDED: 4, NOT_FOUND: 5, ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7, RESOURCE_EXHAUSTED: 8, UNIMPLEMENTED: 12, INTERNAL: 13, UNAUTHENTICATED: 16,
};

const CONTENT_TYPE = 'application/grpc';
const SETTINGS = {
  // Session, Health and the reads of a resource or prompt at one time.
  maxConcurrentStreams: 128,
  // Of one stream: a message fits without waiting.
  initialWindowSize: MAX_MESSAGE_BYTES,
  maxHeaderListSize: 16 * 1024,
  enablePush: false,
};
/** Characters of a status' message: it travels as a header. */
const MAX_STATUS_TEXT = 2048;
/** Of the whole connection, in both directions. */
const WINDOW_BYTES = 16 * 1024 * 1024;
/** What Node may hold of a connection, in MB: it counts queued messages. */
const SESSION_MEMORY = 64;

export class GrpcServer {
  #server = http2.createServer({ settings: SETTINGS, maxSessionMemory: SESSION_MEMORY });
  #methods = new Map();
  #sessions = new Set();

  /** @param authorized told the `authorization` header of every call; false refuses it */
  constructor(authorized) {
    this.#server.on('session', (session) => {
      this.#sessions.add(session);
      session.setLocalWindowSize(WINDOW_BYTES);
      session.on('close', () => this.#sessions.delete(session));
      session.on('error', () => session.destroy());
    });
    this.#server.on('stream', (stream, headers) => {
      const call = new GrpcCall(stream, this.#methods.get(headers[':path']));
      const refusal = refuse(headers, call.method, authorized);
      if (refusal) call.finish(...refusal);
      else call.serve();
    });
  }

  /**
   * Adds a method of `methods()`. `handle` is, for a bidirectional one, told the call; for the others it is given
   * the request and {signal, write} and returns the response or, when it streams, a promise of the end. What it
   * throws is the status: `code` and the message.
   */
  add(method, handle) {
    this.#methods.set(method.path, { ...method, handle });
  }

  /** Resolves when the socket accepts connections. */
  async listen(path) {
    this.#server.listen(path);
    await once(this.#server, 'listening');
  }

  /** Takes no more calls and resolves when those that run have ended. */
  async close() {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const session of this.#sessions) session.close();
    await closed;
  }
}

function refuse(headers, method, authorized) {
  if (!authorized(headers.authorization)) return [STATUS.UNAUTHENTICATED, 'no valid token'];
  if (headers[':method'] !== 'POST' || !String(headers['content-type']).startsWith(CONTENT_TYPE)) {
    return [STATUS.INTERNAL, 'not a gRPC request'];
  }
  if (method === undefined) return [STATUS.UNIMPLEMENTED, 'no such method'];
  return undefined;
}

/**
 * One call. Emits `message` (a request), `end` (the client sends no more), `gone` (it left, or broke the protocol:
 * then with a fault's text) and `drain`.
 */
export class GrpcCall extends EventEmitter {
  #stream;
  #reader = new FrameReader(MAX_MESSAGE_BYTES);
  #finished = false;

  constructor(stream, method) {
    super();
    this.method = method;
    this.#stream = stream;
    stream.on('error', () => {});
  }

  serve() {
    const stream = this.#stream;
    stream.respond({ ':status': 200, 'content-type': CONTENT_TYPE }, { waitForTrailers: true });
    stream.on('data', (chunk) => this.#receive(chunk));
    stream.on('end', () => this.#end());
    stream.on('close', () => this.#leave());
    stream.on('drain', () => this.emit('drain'));
    if (this.method.requestStream) this.method.handle(this);
    else serveOne(this);
  }

  /** Sends a response; returns false when the client should be waited for. */
  write(message, sent) {
    if (this.#finished || this.#stream.destroyed) return true;
    return this.#stream.write(frame(this.method.response.encode(message)), sent);
  }

  /** Ends the call with this status. */
  finish(code = STATUS.OK, text = '') {
    if (this.#finished) return;
    this.#finished = true;
    const stream = this.#stream;
    if (stream.destroyed) return;
    const trailers = { 'grpc-status': String(code), 'grpc-message': headerText(text) };
    // What the client still sends is dropped: resetting the stream here would overtake the status.
    stream.removeAllListeners('data');
    stream.resume();
    if (stream.headersSent) {
      stream.once('wantTrailers', () => stream.sendTrailers(trailers));
      stream.end();
    } else {
      stream.respond({ ':status': 200, 'content-type': CONTENT_TYPE, ...trailers }, { endStream: true });
    }
  }

  #receive(chunk) {
    if (this.#finished) return;
    try {
      for (const bytes of this.#reader.push(chunk)) this.emit('message', this.method.request.decode(bytes));
    } catch (error) {
      this.#fault(error);
    }
  }

  #end() {
    if (this.#finished) return;
    if (this.#reader.partial) this.#fault(new FrameError(STATUS.INTERNAL, 'the request ends within a message'));
    else this.emit('end');
  }

  #fault(error) {
    const text = `protocol: ${error.message}`;
    this.finish(error.code ?? STATUS.INTERNAL, text);
    this.emit('gone', text);
  }

  #leave() {
    if (this.#finished) return;
    this.#finished = true;
    this.emit('gone');
  }
}

/** A status' message as a header: what is not printable ASCII, and the percent sign, as bytes of UTF-8 in hex. */
function headerText(text) {
  const escape = (character) => [...Buffer.from(character)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('');
  return text.slice(0, MAX_STATUS_TEXT).replace(/[^ -$&-~]/gu, escape);
}

/** A method with one request: runs its handler when the request is whole. */
function serveOne(call) {
  const abort = new AbortController();
  const requests = [];
  call.on('gone', () => abort.abort());
  call.on('message', (message) => {
    requests.push(message);
    if (requests.length > 1) call.finish(STATUS.INTERNAL, 'more than one request');
  });
  call.on('end', async () => {
    if (requests.length === 0) {
      call.finish(STATUS.INTERNAL, 'no request');
      return;
    }
    const write = async (message) => {
      if (!call.write(message)) await once(call, 'drain', { signal: abort.signal });
    };
    try {
      const response = await call.method.handle(requests[0], { signal: abort.signal, write });
      if (!call.method.responseStream) call.write(response);
      call.finish();
    } catch (error) {
      call.finish(error.code ?? STATUS.UNKNOWN, error.message);
    }
  });
}
