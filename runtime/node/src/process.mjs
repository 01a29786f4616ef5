//! How the worker's process ends. 0: its session ended or it was asked to go. 76: the protocol was broken.
//! 78: the plugin could not be loaded. Whatever else ends it (process.exit, an uncaught exception, an unhandled
//! rejection) is the plugin's crash: 70.

import { place } from './failures.mjs';
import { operatorLine } from './logs.mjs';

export const EXIT = { OK: 0, CRASH: 70, PROTOCOL: 76, LOAD: 78 };

// As Node has it: a plugin that loads `domain` replaces it.
const capture = process.setUncaughtExceptionCaptureCallback.bind(process);

let leaving = false;

/** Makes every end that is not `leave` a crash, and reports where the plugin called process.exit. */
export function guardExit() {
  process.on('exit', (code) => {
    if (leaving) return;
    process.exitCode = EXIT.CRASH;
    // The listener runs within process.exit, and so below the plugin's own code.
    const at = place(new Error());
    if (at !== undefined) operatorLine('the plugin called process.exit', { error: `exit code ${code} at ${at}` });
  });
}

/**
 * Ends the process with this code by an error that nobody catches. Only so does Node print where a module does not
 * parse; the error itself does not tell.
 */
export function leaveBy(error, code) {
  leaving = true;
  process.on('exit', () => {
    process.exitCode = code;
  });
  // What the plugin has loaded so far may have put up its own.
  process.removeAllListeners('uncaughtException');
  capture(null);
  process.nextTick(() => {
    throw error;
  });
}

/** Ends the process with this code. */
export function leave(code) {
  leaving = true;
  process.exit(code);
}
