//! What the types of a definition say, as JSON Schema 2020-12: the answer to an invoke with `describe`. Loaded only
//! then. No handler runs; what JSON Schema cannot say is refused with the field and the way out.
import { CallError } from './errors.mjs';
import { zod } from './zod.mjs';

const FORMAT = 1;

/** type of a zod schema that JSON does not know → what to write instead; for others the zod type is named */
const WAYS_OUT = {
  date: 'z.iso.datetime() or z.iso.date(), and make the Date in the handler',
  bigint: 'z.int(), or a string with z.string().regex(/^-?\\d+$/)',
  map: 'z.record(z.string(), …)',
  set: 'z.array(…)',
  transform: 'the type of the outcome in `output`, and the transform in the handler',
  undefined: '.optional()',
  void: '.optional()',
};

/** Returns `{format, inputSchema, outputSchema, artifactSchema}`; a schema is null where the code does not say. */
export function describe(definition) {
  return {
    format: FORMAT,
    inputSchema: schemaOf(definition.input, 'input'),
    outputSchema: schemaOf(definition.output, 'output'),
    artifactSchema: null,
  };
}

function schemaOf(type, side) {
  if (type === undefined) return null;
  const { $schema, ...schema } = generate(type, side);
  if (Object.keys(schema).length === 0) return null;
  if (schema.type === 'object') return schema;
  const branches = schema.oneOf ?? schema.anyOf;
  if (branches?.every((branch) => branch.type === 'object')) return { type: 'object', ...schema };
  throw new CallError('SCHEMA', `${side}: ${type._zod.def.type} is no object; write z.object({…}) around it`);
}

function generate(type, side) {
  const refuse = ({ zodSchema, path, message }) => {
    const { type: name } = zodSchema._zod.def;
    const instead = WAYS_OUT[name] ?? 'a type that JSON knows';
    throw new CallError('SCHEMA', `${[side, ...fields(path)].join('.')}: ${name}: ${message}; write ${instead}`);
  };
  try {
    // `input`: what a caller may leave out; `output`: what is always there once the type has made it.
    return zod().toJSONSchema(type, { target: 'draft-2020-12', io: side, unrepresentable: refuse, override: dropMade });
  } catch (error) {
    if (error instanceof CallError) throw error;
    throw new CallError('SCHEMA', `${side}: ${error.message}; write a type that JSON knows`);
  }
}

/** Leaves out a default that is another whenever it is asked for, as the same code gives the same schema. */
function dropMade({ zodSchema, jsonSchema }) {
  const { def } = zodSchema._zod;
  if (jsonSchema.default === undefined || !('defaultValue' in def)) return;
  const before = JSON.stringify(def.defaultValue);
  // A time of day is the same within a millisecond.
  for (const now = Date.now(); Date.now() === now;);
  if (JSON.stringify(def.defaultValue) !== before) delete jsonSchema.default;
}

/** The fields on the way to a place in a JSON Schema; `*` stands for an item or any key. */
function fields(path) {
  const found = [];
  for (let at = 0; at < path.length; at += 1) {
    if (path[at] === 'properties') found.push(path[(at += 1)]);
    else if (['items', 'prefixItems', 'additionalProperties'].includes(path[at])) found.push('*');
  }
  return found;
}
