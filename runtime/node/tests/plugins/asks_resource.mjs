// A resource that asks in the midst of its contents.
import { resource } from '@asp/plugin';

export default resource(async function* (uri, args, ctx) {
  yield 'first';
  const { action } = await ctx.elicit('name').catch((error) => ({ action: error.reason }));
  yield action;
});
