import './listens.mjs';
import { tool } from '@asp/plugin';

const config = JSON.parse('{');

export default tool(() => config);
