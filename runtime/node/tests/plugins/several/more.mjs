import { tool } from '@asp/plugin';
import { loads } from './loads.mjs';

loads.push('more');

export default tool(() => ({ more: true }));
