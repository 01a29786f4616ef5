// Asks for a greeting.
import { prompt } from '@asp/plugin';

export default prompt(({ name }) => `Write a greeting for ${name}.`);
