// A TypeScript author's plugin. It is compiled, not run; each @ts-expect-error is a mistake the types must find.
import { CallError, ToolError, isCancelled, prompt, resource, result, tool, type Context } from '@asp/plugin';

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
