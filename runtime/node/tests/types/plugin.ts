// A TypeScript author's plugin. It is compiled, not run; each @ts-expect-error is a mistake the types must find.
import { CallError, ToolError, isCancelled, prompt, resource, result, tool, z, type Context } from '@asp/plugin';
import { callTool, fakeContext } from '@asp/plugin/testing';

interface Args { city: string; days?: number }
interface State { done: number }

export const forecast = tool<Args, { max: number }, State>(async ({ city, days = 3 }, ctx) => {
  ctx.progress(10, `asking for ${city}`, { days });
  // @ts-expect-error a percent is a number
  ctx.progress('10');
  const { action, fields } = await ctx.elicit<{ unit: string }>('which_unit', { fields: { unit: { type: 'string' } } });
  // @ts-expect-error no such action
  if (action === 'maybe') return { max: 0 };
  const unit: string | undefined = fields.unit;
  const uri: string = await ctx.artifact({ name: 'a.csv', type: 'csv', data: new Uint8Array(1) });
  await ctx.artifact({ uri: 'https://example.com/a' });
  // @ts-expect-error data and uri exclude each other
  await ctx.artifact({ name: 'a', data: 'x', uri: 'https://example.com' });
  const label = await ctx.delegate<string[]>('classifier', { text: uri }, { timeoutSeconds: 5 });
  await ctx.checkpoint({ done: ctx.resume?.state?.done ?? 0 });
  // @ts-expect-error not the state's type
  await ctx.checkpoint({ other: 1 });
  ctx.log('info', label.join());
  const seen = await ctx.storage.getVersioned<{ days: number }>(city, { user: true });
  const version: number = await ctx.storage.put(city, { days }, { ttlSeconds: 60, ifVersion: seen?.version ?? 0 });
  // @ts-expect-error a value is JSON
  await ctx.storage.put(city, () => version);
  ctx.log('emergency', 'x');
  // @ts-expect-error no such level
  ctx.log('loud', 'x');
  await fetch('https://api.example', { signal: ctx.signal, headers: { authorization: `Bearer ${ctx.token?.reveal()}` } });
  if (ctx.cancelled || ctx.preempted) return result({ output: { max: 1 }, content: [{ type: 'text', text: 'x' }] });
  if (!unit) throw new CallError('NO_UNIT', 'no unit', { details: { city } });
  return { max: 1 };
}, { checkpoint: true });

// @ts-expect-error the output lacks max
export const wrong = tool<Args, { max: number }>(() => ({ min: 1 }));

export const plain = tool((args, ctx) => {
  try {
    return { text: args.anything, left: ctx.deadline?.getTime() };
  } catch (error) {
    if (isCancelled(error)) throw error;
    throw new ToolError('no');
  }
});

export const book = resource<{ id: string }>({
  async *read(uri, { id }, ctx) {
    yield { uri, mimeType: 'text/plain', text: id };
    yield new Uint8Array(ctx.requestId.length);
  },
  list: () => [{ uri: 'lib://a' }],
});

export const letter = prompt<{ name: string }>(({ name }) => [{ role: 'user', content: `Write to ${name}` }]);
// @ts-expect-error no such role
export const odd = prompt(() => [{ role: 'system', content: 'x' }]);

export function helper(ctx: Context): string {
  return ctx.caller.tenant;
}

const Input = z.strictObject({ city: z.string(), days: z.int().min(1).default(3), unit: z.enum(['C', 'F']).optional() });
const Output = z.object({ max: z.number(), note: z.string().default('') });

export const typed = tool({ input: Input, output: Output, checkpoint: true }, async ({ city, days, unit }, ctx) => {
  const whole: number = days;
  // @ts-expect-error it may be absent
  const known: 'C' | 'F' = unit;
  // @ts-expect-error no such argument
  ctx.progress(whole, `${city}${known}`.concat(({} as z.output<typeof Input>).country));
  if (ctx.cancelled) return result({ output: { max: 0 } });
  return { max: whole };
});
// @ts-expect-error max is a number
export const mistyped = tool({ input: Input, output: Output }, ({ city }) => ({ max: city }));
// @ts-expect-error a schema of zod
export const untyped = tool({ input: { city: 'string' } }, () => ({}));
export const inputAlone = tool({ input: Input }, ({ days }) => ({ anything: days.toFixed() }));

export async function check(): Promise<number> {
  const ctx = fakeContext({ answers: { which_unit: { unit: 'C' }, sure: 'decline' }, delegations: { judge: 'unavailable' } });
  await callTool(typed, { city: 'Oslo' }, ctx);
  ctx.cancel('soft');
  return ctx.recorded.progress.length + ctx.recorded.artifacts.reduce((sum, { data }) => sum + (data?.length ?? 0), 0);
}
