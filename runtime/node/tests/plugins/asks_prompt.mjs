// A prompt that asks before it answers.
import { prompt } from '@asp/plugin';

const asking = async (ctx) => {
  const [name, roots] = await Promise.all([ctx.elicit('name'), ctx.delegate('roots', null)]);
  const said = await ctx.delegate('model', name.fields.name).catch((error) => ({ text: error.reason }));
  return `${name.fields.name} ${roots.json.roots.length} ${said.text}`;
};

export default prompt((args, ctx) => asking(ctx));
