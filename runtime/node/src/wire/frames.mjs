//! gRPC's framing (grpc.io PROTOCOL-HTTP2): a byte that says whether it is compressed, four of length, the message.
//! Refuses compressed and oversize messages before their bytes arrive.
import { Buffer } from 'node:buffer';

const HEAD = 5;

/** A peer that does not keep to the protocol; `code` is the gRPC status it is answered with. */
export class FrameError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** Returns a message as a frame. */
export function frame(message) {
  const head = Buffer.allocUnsafe(HEAD);
  head[0] = 0;
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** Takes what arrives and gives whole messages; what it holds is bounded by the largest message. */
export class FrameReader {
  #largest;
  #chunks = [];
  #held = 0;
  #wanted = HEAD;
  #inMessage = false;

  constructor(largest) {
    this.#largest = largest;
  }

  /** Whether a frame has begun and not ended. */
  get partial() {
    return this.#inMessage || this.#held > 0;
  }

  /** Returns the messages that are whole now; throws a FrameError. */
  push(chunk) {
    this.#chunks.push(chunk);
    this.#held += chunk.length;
    const messages = [];
    while (this.#held >= this.#wanted) {
      const part = this.#take(this.#wanted);
      if (this.#inMessage) messages.push(part);
      this.#wanted = this.#inMessage ? HEAD : this.#length(part);
      this.#inMessage = !this.#inMessage;
    }
    return messages;
  }

  #length(head) {
    if (head[0] !== 0) throw new FrameError(12, 'compressed messages are not supported');
    const length = head.readUInt32BE(1);
    if (length > this.#largest) throw new FrameError(8, `a message of ${length} bytes, allowed are ${this.#largest}`);
    return length;
  }

  #take(length) {
    const all = this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks);
    const rest = all.subarray(length);
    this.#chunks = rest.length > 0 ? [rest] : [];
    this.#held = rest.length;
    return all.subarray(0, length);
  }
}
