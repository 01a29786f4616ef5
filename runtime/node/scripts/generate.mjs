//! Writes src/wire/plugin.json, the platform-plugin protocol as src/wire/codec.mjs reads it, from
//! proto/plugin.proto. A test fails when the two differ. Run it with `npm run generate`.
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import protobuf from 'protobufjs';

const PROTO = fileURLToPath(new URL('../../../proto/plugin.proto', import.meta.url));
const TARGET = fileURLToPath(new URL('../src/wire/plugin.json', import.meta.url));

/** Returns the protocol as protobufjs understands it. */
export function protocol() {
  const root = new protobuf.Root();
  // The google types come with protobufjs.
  root.resolvePath = (_origin, target) => (target.startsWith('google/protobuf/') ? null : target);
  root.loadSync(PROTO, { keepCase: false });
  root.resolveAll();
  return root;
}

/** Returns the text of plugin.json: each message's fields, the enums' values and the services' methods. */
export function descriptor() {
  const found = { messages: {}, enums: {}, services: {} };
  collect(protocol(), found);
  const sections = Object.entries(found).map(([name, entries]) => {
    // One entry a line: what changes can be read in a diff.
    const lines = Object.entries(entries).map(([key, value]) => `  ${JSON.stringify(key)}: ${JSON.stringify(value)}`);
    return ` ${JSON.stringify(name)}: {\n${lines.join(',\n')}\n }`;
  });
  return `{\n${sections.join(',\n')}\n}\n`;
}

function collect(namespace, found) {
  for (const entry of namespace.nestedArray) {
    const name = entry.fullName.slice(1);
    if (entry instanceof protobuf.Type) found.messages[name] = Object.fromEntries(entry.fieldsArray.map((field) => [field.name, describe(field)]));
    else if (entry instanceof protobuf.Enum) found.enums[name] = entry.values;
    else if (entry instanceof protobuf.Service) found.services[name] = Object.fromEntries(entry.methodsArray.map((method) => [method.name, signature(method)]));
    if (entry.nestedArray) collect(entry, found);
  }
}

function describe(field) {
  const { resolvedType } = field;
  const described = { id: field.id, type: field.type };
  if (resolvedType instanceof protobuf.Enum) described.type = 'enum';
  if (resolvedType instanceof protobuf.Type) Object.assign(described, { type: 'message', of: resolvedType.fullName.slice(1) });
  if (field.map) Object.assign(described, { rule: 'map', key: field.keyType });
  else if (field.repeated) described.rule = 'repeated';
  // A synthetic oneof only says that the field's absence is seen.
  if (field.partOf) Object.assign(described, field.partOf.isProto3Optional ? { rule: 'optional' } : { oneof: field.partOf.name });
  // Numbers would be packed.
  if (field.repeated && !['message', 'string'].includes(described.type)) throw new Error(`${field.fullName}: the codec repeats messages and strings only`);
  return described;
}

function signature(method) {
  return {
    request: method.resolvedRequestType.fullName.slice(1),
    response: method.resolvedResponseType.fullName.slice(1),
    requestStream: method.requestStream === true,
    responseStream: method.responseStream === true,
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(TARGET, descriptor());
