import { prompt } from '@asp/plugin';

export default prompt(() => 'x');
