// Says what it was told.
import { tool } from '@asp/plugin';

export default tool(async ({ text }) => ({ text }));
