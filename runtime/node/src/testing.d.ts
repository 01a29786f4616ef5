/** Types of `@asp/plugin/testing`: a context for unit tests of a handler. Kept by hand beside testing.mjs. */
import type { Caller, Context, Definition, Json, LogLevel } from '@asp/plugin';

/** What a test gives; what is not in `answers` and `delegations` is undeclared. */
export interface Given<State = Json> {
  /** Id of a question → the fields of an accepted form, or another end. */
  answers?: Readonly<Record<string, Readonly<Record<string, Json>> | 'decline' | 'cancel' | 'expired' | 'unsupported'>>;
  /** Id of a delegate → its result, or the word that says why there is none. */
  delegations?: Readonly<Record<string, Json>>;
  requestId?: string;
  taskId?: string;
  caller?: Partial<Caller>;
  deadline?: Date;
  budget?: number;
  token?: string;
  idempotencyKey?: string;
  attrs?: Readonly<Record<string, string>>;
  workDir?: string;
  /** The state that an earlier execution saved. */
  resume?: State;
  /** The granted secrets by name. */
  secrets?: Readonly<Record<string, string>>;
  /** What other calls share; one of its own when absent. */
  storage?: FakeStorage;
}

/** A storage in memory with the platform's bounds. */
export class FakeStorage {
  constructor(given?: { error?: string });
  /** A word, such as `unavailable`, that every request gets in place of a result. */
  error: string;
  /** Lets time pass, so that keys expire. */
  advance(seconds: number): void;
}

/** What the handler told, in its order. */
export interface Recorded {
  progress: { percent: number; message: string; gauges: Readonly<Record<string, number>> }[];
  chunks: Json[];
  /** `data` is absent where a foreign URI was named. */
  artifacts: { uri: string; type: string; contentType: string; description: string; data?: Uint8Array }[];
  logs: { level: Lowercase<LogLevel>; message: string }[];
  statuses: { phase: string; metadata?: Json }[];
  checkpoints: Json[];
  /** The URIs. */
  changedResources: string[];
  /** The ids of pages where the user is done. */
  completedElicitations: string[];
  questions: { id: string; title: string; message: string; fields?: Json; schema?: Json; url: string }[];
  delegations: { id: string; input: Json }[];
}

export interface FakeContext<State = Json> extends Context<State> {
  readonly recorded: Recorded;
  /** `hard` (when absent) fires the signal; `soft` and `preempt` end the handler at its next question or checkpoint. */
  cancel(mode?: 'hard' | 'soft' | 'preempt', reason?: string): void;
  /** The deadline passes. */
  expire(): void;
}

export function fakeContext<State = Json>(given?: Given<State>): FakeContext<State>;

/** Calls a tool's handler as the worker does: arguments and result converted. Rejects with what the call would fail by. */
export function callTool(definition: Definition<'tool'>, args: unknown, ctx: Context<any>): Promise<any>;
