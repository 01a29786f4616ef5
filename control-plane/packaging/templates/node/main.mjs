// Greets someone by name.
import { tool, z } from '@asp/plugin';

const input = z.strictObject({ name: z.string() });
const output = z.strictObject({ greeting: z.string() });

export default tool({ input, output }, async ({ name }, ctx) => {
  ctx.progress(50, 'finding the words');
  return { greeting: `Hello, ${name}!` };
});
