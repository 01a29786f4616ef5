import { ToolError, result, tool } from '@asp/plugin';

export default tool(async (args, ctx) => {
  if (args.artifact) await ctx.artifact(args.artifact);
  if (args.toolError) throw new ToolError('no');
  if (args.isError) return result({ isError: true, content: [{ type: 'text', text: 'no' }] });
  return args.output ?? { rows: 1 };
});
