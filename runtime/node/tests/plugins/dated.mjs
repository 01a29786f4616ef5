import { tool, z } from '@asp/plugin';

const Input = z.object({ trip: z.object({ legs: z.array(z.object({ on: z.date() })) }) });

export default tool({ input: Input }, () => ({}));
