//! A handler whose types are zod schemas: arguments become what `input` makes of them (defaults, transforms) before
//! it runs, what it returns becomes what `output` makes of it. A fault names the field by its JSON Pointer.
import { CallError } from './errors.mjs';

const RESULT = Symbol.for('asp.plugin.result');
/** Faults named in one answer. */
const MAX_FAULTS = 5;

/** Calls the definition's handler with arguments that are JSON; resolves to what it returned, converted. */
export async function callTyped(definition, args, context) {
  const { input, output } = definition;
  const given = input === undefined ? args : await convert(input, args, 'INVALID_ARGUMENT');
  const returned = await definition.call(given, context);
  if (output === undefined) return returned;
  if (returned?.[RESULT] !== true) return convert(output, returned, 'INVALID_OUTPUT');
  // A failure that the model reads is no result.
  if (returned.isError) return returned;
  return { ...returned, output: await convert(output, returned.output, 'INVALID_OUTPUT') };
}

async function convert(schema, value, code) {
  const parsed = await schema.safeParseAsync(value);
  if (parsed.success) return parsed.data;
  const { issues } = parsed.error;
  const text = issues.slice(0, MAX_FAULTS).map((issue) => `${pointer(issue.path) || '/'}: ${issue.message}`).join('; ');
  throw new CallError(code, text, { details: { pointer: pointer(issues[0].path) } });
}

/** RFC 6901. */
function pointer(path) {
  return path.map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}
