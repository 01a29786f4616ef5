import { tool, type Context } from '@asp/plugin';

interface Args { n: number }

export default tool<Args, { n: number }>(async ({ n }: Args, ctx: Context) => {
  ctx.progress(50);
  return { n };
});
