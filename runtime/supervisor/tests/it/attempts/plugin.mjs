import { tool } from '@asp/plugin';
import { run } from './attempts.mjs';

export default tool(run);
