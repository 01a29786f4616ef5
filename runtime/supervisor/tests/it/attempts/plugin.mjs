import { CallError, tool } from '@asp/plugin';
import { run } from './attempts.mjs';

function secret(args, ctx) {
  const key = ctx.secret(args.secret).reveal();
  process.stdout.write(`stdout ${key}\n`);
  ctx.log('info', `log ${key}`);
  if (args.fail) throw new CallError('FAILS', `failed with ${key}`);
  return { text: key, environment: Object.values(process.env).includes(key) };
}

export default tool((args, ctx) => (args.secret ? secret(args, ctx) : run(args, ctx)));
