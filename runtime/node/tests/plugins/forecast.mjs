import { createRequire } from 'node:module';
import { ToolError, result, tool, z } from '@asp/plugin';

const Place = z.object({ name: z.string(), tags: z.array(z.string()).default([]) });

const Input = z.strictObject({
  city: z.string().min(1).describe('Where'),
  days: z.int().min(1).max(14).default(3),
  unit: z.enum(['C', 'F']).optional(),
  near: z.array(Place).optional(),
  even: z.int().refine((n) => n % 2 === 0, 'must be even').optional(),
  act: z.string().default('tell'),
});

const Output = z.object({ text: z.string(), days: z.number(), note: z.string().default('none') });

const ACTS = {
  tell: ({ city, days, near }) => ({ text: `${city} ${JSON.stringify(near ?? null)}`, days, secret: 'left out' }),
  wrong: () => ({ text: 7, days: 1 }),
  nothing: () => undefined,
  libraries: () => ({ text: Object.keys(createRequire(import.meta.url).cache).join(' '), days: 1 }),
  own: ({ days }) => result({ output: { text: 'own', days }, content: [{ type: 'text', text: 'own' }] }),
  own_wrong: () => result({ output: { text: 'own' } }),
  error: () => result({ isError: true, content: [{ type: 'text', text: 'no' }] }),
  tool_error: () => { throw new ToolError('no weather'); },
};

export default tool({ input: Input, output: Output }, async (args, ctx) => {
  ctx.progress(50, 'asking');
  process.stdout.write('the handler runs\n');
  return ACTS[args.act](args);
});
