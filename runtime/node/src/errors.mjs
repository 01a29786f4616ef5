//! The errors that cross between a plugin and its worker. They are told apart by registered symbols, because a
//! plugin may bundle its own copy of this file.

const CALL_ERROR = Symbol.for('asp.plugin.callError');
const TOOL_ERROR = Symbol.for('asp.plugin.toolError');
/** How a code is spelled on the wire. */
const CODE = /^[A-Z][A-Z0-9_]{0,63}$/;

/** Ends the call with a code and a message that the caller sees. */
export class CallError extends Error {
  /**
   * @param {string} code upper case, such as `NOT_FOUND`
   * @param {string} message for the caller: no secrets
   * @param {{details?: unknown, reason?: string, cause?: unknown}} [more]
   */
  constructor(code, message, more = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause });
    if (!CODE.test(code)) throw new TypeError(`not an error code: ${String(code).slice(0, 80)}`);
    this.name = code === 'CANCELLED' || code === 'DEADLINE' ? 'AbortError' : 'CallError';
    this.code = code;
    this.details = more.details;
    this.reason = more.reason;
    this[CALL_ERROR] = true;
  }
}

/** The tool ran and failed in a way the model should read; the call itself completes. */
export class ToolError extends Error {
  constructor(message) {
    super(message);
    this.name = 'ToolError';
    this[TOOL_ERROR] = true;
  }
}

/** The plugin cannot be served; the message says it all, so that no stack is printed with it. */
export class LoadError extends Error {}

/** Whether this error says that the call was cancelled, preempted or ran out of time. */
export function isCancelled(error) {
  return isCallError(error) && (error.code === 'CANCELLED' || error.code === 'DEADLINE');
}

export function isCallError(error) {
  return error instanceof Error && error[CALL_ERROR] === true && CODE.test(error.code);
}

export function isToolError(error) {
  return error instanceof Error && error[TOOL_ERROR] === true;
}
