//! JSON Schema 2020-12 for arguments, results and artifacts: compiled once when the worker starts, `format`
//! asserted, unknown keywords ignored as the draft says. A schema that does not compile stops the worker.
import { createRequire } from 'node:module';
import { CallError } from './errors.mjs';
import { parseJson } from './wire/messages.mjs';

const require = createRequire(import.meta.url);
/**
 * The registry has checked each schema against its meta-schema; doing it again takes longer than everything else a
 * worker does at its start.
 */
const OPTIONS = { strict: false, allErrors: false, logger: false, validateSchema: false, meta: false };
/** Faults named in one answer. */
const MAX_FAULTS = 5;

/**
 * Returns `{input, output, artifact}`: each `(value) => {text, pointer} | undefined`. Where the definition has types the
 * schema was made of them, and they judge in its place: what a worker loads for both would double its start.
 */
export function compileSchemas(manifest, definition) {
  const schemas = [
    definition.input ? undefined : manifest.inputSchema,
    definition.output ? undefined : manifest.outputSchema,
    artifactItem(manifest.artifactSchema),
  ];
  if (schemas.every((schema) => schema === undefined)) {
    return { input: accept, output: accept, artifact: accept };
  }
  // Loaded only when needed: 25 ms of a cold start.
  const { Ajv2020 } = require('ajv/dist/2020.js');
  const { default: addFormats } = require('ajv-formats');
  const [input, output, artifact] = schemas.map((schema) => {
    if (schema === undefined) return accept;
    // One instance a schema: two schemas may carry the same $id.
    const ajv = new Ajv2020(OPTIONS);
    addFormats(ajv);
    return validator(ajv.compile(schema));
  });
  return { input, output, artifact };
}

/** Returns the arguments of a request, `{}` when there are none; throws what fails it with INVALID_ARGUMENT. */
export function readArguments(message, schemas) {
  let args;
  try {
    args = parseJson(message) ?? {};
  } catch {
    throw new CallError('INVALID_ARGUMENT', 'arguments: not JSON');
  }
  const fault = schemas.input(args);
  if (fault) throw new CallError('INVALID_ARGUMENT', `arguments: ${fault.text}`, { details: { pointer: fault.pointer } });
  return args;
}

function accept() {
  return undefined;
}

function validator(validate) {
  return (value) => {
    if (validate(value)) return undefined;
    const { errors } = validate;
    return { text: errors.slice(0, MAX_FAULTS).map(describe).join('; '), pointer: errors[0].instancePath };
  };
}

function describe(fault) {
  const extra = fault.params?.additionalProperty ?? fault.params?.unevaluatedProperty;
  const name = extra === undefined ? '' : `: ${String(extra).slice(0, 80)}`;
  return `${fault.instancePath || '/'} ${fault.message}${name}`;
}

/** The schema describes the list of a call's artifacts; one artifact is judged when it is emitted. */
function artifactItem(schema) {
  if (schema?.items === undefined) return schema;
  const { $defs, definitions } = schema;
  return { ...($defs && { $defs }), ...(definitions && { definitions }), allOf: [schema.items] };
}
