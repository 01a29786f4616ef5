// Greets everybody.
import { resource } from '@asp/plugin';

export default resource(() => 'Hello, everybody!');
