//! A plugin that does what its arguments say: the tests' puppet.
import { CallError, ToolError, result, tool } from '@asp/plugin';

const ACTS = {
  echo: (args) => ({ echo: args.value ?? null }),
  fail: () => { throw new Error('secret detail in /etc/shadow'); },
};

export default tool(async (args, ctx) => ACTS[args.act](args, ctx), { checkpoint: true });
