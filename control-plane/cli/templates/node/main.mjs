// Greets someone by name.
import { tool } from '@asp/plugin';

export default tool(async ({ name }, ctx) => {
  ctx.progress(50, 'finding the words');
  return { greeting: `Hello, ${name}!` };
});
