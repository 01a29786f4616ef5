//! Writes src/wire/plugin.json, the platform-plugin protocol as a protobufjs descriptor, from proto/plugin.proto.
//! A test fails when the two differ. Run it with `npm run generate`.
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import protobuf from 'protobufjs';

const PROTO = fileURLToPath(new URL('../../../proto/plugin.proto', import.meta.url));
const TARGET = fileURLToPath(new URL('../src/wire/plugin.json', import.meta.url));

/** Returns the descriptor's text. */
export function descriptor() {
  const root = new protobuf.Root();
  // The google types come with protobufjs.
  root.resolvePath = (_origin, target) => (target.startsWith('google/protobuf/') ? null : target);
  root.loadSync(PROTO, { keepCase: false });
  root.resolveAll();
  return `${JSON.stringify(root.toJSON(), null, 1)}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(TARGET, descriptor());
