import { tool } from '@asp/plugin';

// What an author may leave behind.
const = 5;

export default tool(() => ({}));
