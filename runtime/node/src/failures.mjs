//! What an unexpected exception of a plugin is called: for its author in the log, in development for the caller too.
//! Outside of development a caller learns nothing of it. A limit of the sandbox is named with the key of the spec that
//! changes it.
import { realpathSync } from 'node:fs';
import { isAbsolute, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const FOR_CALLERS = 'the plugin failed; its log says why';
/** How many errors are followed from one to its cause. */
const MAX_CAUSES = 16;
/** A line of a stack: the file, as a path or URL, and the line. */
const FRAME = /((?:file:\/\/)?\/[^\s()]*):(\d+):\d+\)?$/;

const NETWORK = 'blocked: a plugin reaches only the hosts in security.allowedDomains of its spec, by HTTP through its proxy, and the services in security.allowedTcp';
const DISK = 'blocked: the work directory is limited by runtime.resources.disk of the spec';
/** By the error's code. */
const LIMITS = new Map([
  ...['EAI_AGAIN', 'ENOTFOUND', 'EAFNOSUPPORT', 'ENETUNREACH'].map((code) => [code, NETWORK]),
  ...['ENOSPC', 'EDQUOT', 'EFBIG'].map((code) => [code, DISK]),
  ['EAGAIN', 'blocked: processes and threads are limited by runtime.resources.pids of the spec'],
  ['EMFILE', 'blocked: open files are limited by runtime.resources.files of the spec'],
]);
/** By the permission that Node refused; no setting gives them. */
const PERMISSIONS = new Map([
  ['ChildProcess', 'blocked: a plugin in Node starts no processes'],
  ['FileSystemRead', 'blocked: a plugin reads only its package and ctx.workDir'],
  ['FileSystemWrite', 'blocked: a plugin writes only to ctx.workDir'],
]);

/** Returns what the caller is told. */
export function failureText(error) {
  if (process.env.ASP_DEVELOPMENT !== 'true') return FOR_CALLERS;
  try {
    return [place(error), text(error), remedy(error)].filter(Boolean).join(': ');
  } catch {
    return FOR_CALLERS;
  }
}

/** Returns what the caller is told of a value that is not JSON: in development with the first line of the reason. */
export function invalidText(message, cause) {
  if (process.env.ASP_DEVELOPMENT !== 'true' || cause === undefined) return message;
  return `${message}: ${text(cause).split('\n', 1)[0]}`;
}

/** Returns what the log is told: the stacks of the error and of what caused it. */
export function failureTrace(error) {
  try {
    const stacks = causes(error).map((cause) => String(cause?.stack ?? cause));
    return [stacks.join('\ncaused by: '), remedy(error)].filter(Boolean).join('\n');
  } catch {
    return text(error);
  }
}

/** Returns the limit of the sandbox that an error met; undefined if it met none. */
function remedy(error) {
  const met = causes(error).map((cause) => (cause?.code === 'ERR_ACCESS_DENIED' ? PERMISSIONS.get(cause.permission) : LIMITS.get(cause?.code)));
  return met.find((limit) => limit !== undefined);
}

function causes(error) {
  const found = [error];
  while (found.length < MAX_CAUSES && found.at(-1)?.cause !== undefined) found.push(found.at(-1).cause);
  return found;
}

/** Returns file and line of the plugin's own code where the error was made; undefined if none is known. */
export function place(error) {
  for (const line of String(error?.stack ?? '').split('\n')) {
    const [, file, number] = FRAME.exec(line) ?? [];
    const path = file === undefined ? undefined : ownPath(file);
    if (path !== undefined) return `${path}:${number}`;
  }
  return undefined;
}

/** Returns the path below the package; undefined for a file of somebody else. */
export function ownPath(file) {
  try {
    const path = relative(realpathSync(process.env.ASP_PLUGIN_CODE), file.startsWith('file:') ? fileURLToPath(file) : file);
    return path.startsWith('..') || isAbsolute(path) || path.includes('node_modules/') ? undefined : path;
  } catch {
    return undefined;
  }
}

function text(error) {
  try {
    return String(error);
  } catch {
    return 'an error without a text';
  }
}
