/**
 * Types of `@asp/plugin`: what a plugin's author writes against. Kept by hand beside index.mjs; a test compiles a
 * plugin against them and checks that both export the same names.
 */
import type { z } from 'zod';

/** zod 4, for plugins that install nothing; with one of your own, `import { z } from 'zod'` does as well. */
export { z } from 'zod';

/** A value that JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json | undefined };

/** A secret. It prints as `***` everywhere; `reveal()` gives it out. */
export interface Secret {
  reveal(): string;
  toString(): '***';
  toJSON(): '***';
}

export interface Caller {
  readonly tenant: string;
  readonly user: string;
  readonly session: string;
}

/** What every handler is given. */
export interface ReadContext {
  /** The platform's id of the call; the same when it is resumed on another worker. */
  readonly requestId: string;
  readonly caller: Caller;
  /** Absolute end of the call, `undefined` without one. */
  readonly deadline: Date | undefined;
  /** Fires when the call must stop; its `reason` is a `CallError` with code CANCELLED or DEADLINE. */
  readonly signal: AbortSignal;
  /** Scoped, short-lived token for the services the plugin may call. */
  readonly token: Secret | undefined;
  /** `traceparent` and the like. */
  readonly attrs: Readonly<Record<string, string>>;
  /** Returns the operator's secret of this name, which the spec lists in `runtime.secrets`. Throws a `CallError`
   * SECRET_UNAVAILABLE when the operator does not grant it to the primitive. */
  secret(name: string): Secret;
}

/** What a handler may ask. */
export interface Asking {
  /** Asks the user. Throws a `CallError` INPUT_UNSUPPORTED, INPUT_EXPIRED or UNDECLARED when that is not possible. */
  elicit<Fields = Record<string, Json>>(id: string, question?: Question): Promise<Answer<Fields>>;
  /** Asks a model, another primitive or for roots. Throws a `CallError` DELEGATION_FAILED with the `reason`. */
  delegate<Result = Json>(id: string, input: Json, options?: { timeoutSeconds?: number }): Promise<Result>;
  /**
   * Asks a model, which may use `tools` (MCP's `{name, description, inputSchema}`), by a delegate whose spec says
   * `sampling.tools`. The answer's `content` has its blocks: where its `stopReason` is `toolUse`, run what the `tool_use`
   * blocks name, add the answer and a user message of `tool_result` blocks to `messages`, and ask again.
   */
  converse<Result = Json>(
    id: string,
    conversation: { messages: readonly Json[]; tools?: readonly Json[]; toolChoice?: 'auto' | 'required' | 'none' },
    options?: { timeoutSeconds?: number },
  ): Promise<Result>;
}

/** What the handler of a resource or prompt is given. One that asks is left there, and called again from its start with
 * the answers: it has to ask the same again, and what it did before happens again. */
export interface AskingReadContext extends ReadContext, Asking {}

/** What the handler of a tool or task is given. After a hard cancel everything but `log` throws. */
export interface Context<State = Json> extends ReadContext, Asking {
  readonly taskId: string;
  /** Calls left in the caller's tightest rate limit, `undefined` without one. */
  readonly budget: number | undefined;
  readonly idempotencyKey: string | undefined;
  /** Private, writable, size-capped directory. */
  readonly workDir: string;
  /** A hard cancel, or a soft one (the deadline is near): finish the step in hand and return what there is. After a
   * soft one the result counts; the next question, delegation or checkpoint throws. */
  readonly cancelled: boolean;
  /** The platform wants the place back: the next `checkpoint` ends this execution. */
  readonly preempted: boolean;
  /** Present when an earlier worker was lost. */
  readonly resume: Resume<State> | undefined;

  /** @param percent 0..100; a burst keeps the newest. */
  progress(percent: number, message?: string, gauges?: Readonly<Record<string, number>>): void;
  /** Sends a part of the result: a text, or a JSON value. */
  chunk(part: Json): Promise<void>;
  /** Sends an artifact and returns its URI. */
  artifact(spec: Artifact): Promise<string>;
  /** A line of at most 16 KiB. `console` within a call does the same. */
  log(level: LogLevel, message: string): void;
  /** A resource of the server through which the call came reads otherwise than before: who of the caller's org subscribed
   * to it is told. */
  resourceChanged(uri: string): void;
  /** The user has done on the page of the question `id` what was to be done there: clients that can be told so are. */
  elicitationCompleted(id: string): void;
  /** The plugin's own state machine, for observers. */
  status(phase: string, metadata?: Json): void;
  /** Keys and values that outlive the call, if the spec says `storage: true`. */
  readonly storage: Storage;
  /** Saves the state (JSON, at most 64 KiB); it is stored when this resolves. */
  checkpoint(state: State): Promise<void>;
}

/** Whose keys they are: the caller's user's alone with `user: true`, else those of the whole org. */
export interface StorageScope {
  user?: boolean;
}

export interface StoredValue<Value = Json> {
  readonly value: Value;
  /** Another one after each put. */
  readonly version: number;
}

/**
 * What the plugin keeps, at any gateway. Keys have 1 to 256 bytes and no control characters. Throws a `CallError`
 * STORAGE_FAILED whose `reason` is bad_key, bad_ttl, too_large, storage_full, conflict, not_granted, too_many or
 * unavailable; after the last one a put or a delete may have happened.
 */
export interface Storage {
  /** `undefined` when there is no value. */
  get<Value = Json>(key: string, options?: StorageScope): Promise<Value | undefined>;
  /** The value with its version, for a put with `ifVersion`. */
  getVersioned<Value = Json>(key: string, options?: StorageScope): Promise<StoredValue<Value> | undefined>;
  /**
   * Stores a value of at most 64 KiB of JSON and returns its version. `ttlSeconds`: 1 second to 90 days, 30 days when absent.
   * `ifVersion`: only if the key has this version, or no value where it is 0.
   */
  put(key: string, value: Json, options?: StorageScope & { ttlSeconds?: number; ifVersion?: number }): Promise<number>;
  /** The keys that begin with `prefix`, in the order of their bytes. */
  list(prefix?: string, options?: StorageScope): Promise<string[]>;
  /** Whether the key had a value. */
  delete(key: string, options?: StorageScope): Promise<boolean>;
}

export interface Resume<State = Json> {
  /** The last checkpoint, `undefined` when none was saved. */
  readonly state: State | undefined;
  readonly seq: number;
  /** Which execution this is, from 2 on. */
  readonly attempt: number;
  /** Proof for the plugin's own services that this execution replaces the former one. */
  readonly token: Secret | undefined;
}

/** MCP's eight levels, `warn` and `trace`. */
type LogLevelName =
  'trace' | 'debug' | 'info' | 'notice' | 'warn' | 'warning' | 'error' | 'critical' | 'alert' | 'emergency';
export type LogLevel = LogLevelName | Uppercase<LogLevelName>;

interface ArtifactFacts {
  /** One of the types the artifact schema knows; `file` when absent. */
  type?: string;
  /** MIME type; `application/octet-stream` when absent. */
  contentType?: string;
  description?: string;
}

/** Exactly one of `data`, `file` and `uri`. A name is used once in a call: letters, digits, `.`, `_` and `-`. */
export type Artifact =
  | (ArtifactFacts & { name: string; data: string | ArrayBuffer | ArrayBufferView; file?: undefined; uri?: undefined })
  | (ArtifactFacts & { name: string; /** Path in the work directory. */ file: string; data?: undefined; uri?: undefined })
  | (ArtifactFacts & { name?: string; /** An address that exists already. */ uri: string; data?: undefined; file?: undefined });

export interface Question {
  title?: string;
  /** Text for the user; the spec's when absent. */
  message?: string;
  /** The fields to ask for; the spec's when absent. */
  fields?: Readonly<Record<string, Field>>;
  /** An MCP form schema instead of `fields`. */
  schema?: Json;
  /** Where the spec names a page (`primitiveSchema.url`): the page below it that the user is sent to; that one when absent.
   * The answer says whether the user agreed, and what is done there your service knows. */
  url?: string;
}

export interface Field {
  /** `string` when absent. */
  type?: 'string' | 'boolean' | 'number';
  /** true when absent. */
  required?: boolean;
  label?: string;
}

export interface Answer<Fields = Record<string, Json>> {
  readonly action: 'accept' | 'decline' | 'cancel';
  /** Empty unless accepted. */
  readonly fields: Partial<Fields>;
}

/** What the worker takes as an entrypoint's default export. */
export interface Definition<Kind extends 'tool' | 'resource' | 'prompt'> {
  readonly __kind?: Kind;
}

type Schema = z.core.$ZodType;
type Returned<Value> = Value | ToolResult | Promise<Value | ToolResult>;

/**
 * A tool whose types are zod schemas: they are its JSON Schema (`asp plugin build` writes it), the arguments come
 * converted, and what the handler returns goes out as `output` makes it.
 */
export function tool<Input extends Schema, Output extends Schema, State = Json>(
  types: { input: Input; output: Output; /** As below. */ checkpoint?: boolean },
  handler: (args: z.core.output<Input>, ctx: Context<State>) => Returned<z.core.input<Output>>,
): Definition<'tool'>;

/** As above, and the spec says what comes out. */
export function tool<Input extends Schema, State = Json>(
  types: { input: Input; output?: undefined; checkpoint?: boolean },
  handler: (args: z.core.output<Input>, ctx: Context<State>) => unknown,
): Definition<'tool'>;

/** One function of the arguments (valid against the input schema) and the context; returns the output. */
export function tool<Args = any, Output = unknown, State = Json>(
  handler: (args: Args, ctx: Context<State>) => Returned<Output>,
  options?: { /** The plugin saves checkpoints and can resume. */ checkpoint?: boolean },
): Definition<'tool'>;

export interface ToolResult {
  readonly output: unknown;
  readonly content: readonly ContentBlock[] | undefined;
  readonly isError: boolean;
  readonly meta: Readonly<Record<string, unknown>> | undefined;
}

/** An MCP content block. */
export interface ContentBlock {
  type: 'text' | 'image' | 'audio' | 'resource_link' | 'resource';
  [key: string]: unknown;
}

/** A tool's result with content blocks of its own, or with `_meta`, whose names do not begin with `asp/`. */
export function result(parts: {
  output?: unknown;
  content?: readonly ContentBlock[];
  isError?: boolean;
  meta?: Readonly<Record<string, unknown>>;
}): ToolResult;

export type Content =
  | string
  | ArrayBufferView
  | { uri?: string; mimeType?: string; text: string; blob?: undefined }
  | { uri?: string; mimeType?: string; blob: ArrayBufferView; text?: undefined };

/** Several contents, each an object; strings or bytes in a row are one content that is given piece by piece. */
export type Contents = Content | Iterable<Content> | AsyncIterable<Content>;

export interface ResourceInfo {
  uri: string;
  name?: string;
  title?: string;
  description?: string;
  mimeType?: string;
}

/**
 * The texts that could be meant by `value`, which somebody types for `argument`, best first; `known` has the others, as
 * far as the client tells them. It is asked for arguments of which the spec says `completions: {argument: plugin}`.
 */
type Completer = (
  argument: string,
  value: string,
  known: Readonly<Record<string, string>>,
  ctx: ReadContext,
) => readonly string[] | Promise<readonly string[]>;

type Reader<Args> = (uri: string, args: Args, ctx: AskingReadContext) => Contents | Promise<Contents>;

/** A resource or a resource template; `args` are the variables of its URI template. */
export function resource<Args = Record<string, string>>(
  reader:
    | Reader<Args>
    | {
        read: Reader<Args>;
        list?: (ctx: ReadContext) => readonly ResourceInfo[] | Promise<readonly ResourceInfo[]>;
        /**
         * For `watched: plugin`: yields the URI that changed, or nothing for the one subscribed to, until `ctx.signal`
         * fires: nobody is subscribed any more. `ctx.caller` has the org alone.
         */
        subscribe?: (uri: string, ctx: ReadContext) => AsyncIterable<string | undefined | void>;
        complete?: Completer;
      },
): Definition<'resource'>;

export interface PromptMessage {
  role: 'user' | 'assistant';
  content: string | ContentBlock;
}

export type PromptResult = string | readonly PromptMessage[] | { description?: string; messages: readonly PromptMessage[] };

type Getter<Args> = (args: Args, ctx: AskingReadContext) => PromptResult | Promise<PromptResult>;

export function prompt<Args = Record<string, string>>(
  getter:
    | Getter<Args>
    | {
        get: Getter<Args>;
        list?: (ctx: ReadContext) => readonly PromptInfo[] | Promise<readonly PromptInfo[]>;
        complete?: Completer;
      },
): Definition<'prompt'>;

export interface PromptInfo {
  name: string;
  title?: string;
  description?: string;
}

/** Ends the call with a code (upper case) and a message that the caller sees. */
export class CallError extends Error {
  constructor(code: string, message: string, more?: { details?: unknown; reason?: string; cause?: unknown });
  readonly code: string;
  readonly details: unknown;
  readonly reason: string | undefined;
}

/** The tool ran and failed in a way the model should read. */
export class ToolError extends Error {
  constructor(message: string);
}

/** Whether this error says that the call was cancelled, preempted or ran out of time. */
export function isCancelled(error: unknown): error is CallError;
