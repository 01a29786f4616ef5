//! What a checkpoint holds: the plugin's state and how often each elicitation was asked up to then, so that after
//! a resume the answers that the platform kept find their questions.
import { CallError } from '../errors.mjs';
import { MAX_CAPSULE_BYTES, stringify } from '../wire/messages.mjs';

const FORMAT = 1;

/** Returns the capsule's bytes; throws when it is no JSON or too large. */
export function writeCapsule(state, asked) {
  const text = stringify({ format: FORMAT, asked: Object.fromEntries(asked), state }, 'the checkpoint');
  const capsule = Buffer.from(text, 'utf8');
  if (capsule.length > MAX_CAPSULE_BYTES) {
    const reason = `the checkpoint has ${capsule.length} bytes, allowed are ${MAX_CAPSULE_BYTES}`;
    throw new CallError('CHECKPOINT_FAILED', reason, { reason: 'too_large', details: { reason: 'too_large' } });
  }
  return capsule;
}

/** Returns `{state, asked}` of a Resume, `undefined` when no checkpoint was saved. */
export function readCapsule(resume) {
  if (!resume?.capsule?.length) return undefined;
  const { format, asked, state } = JSON.parse(Buffer.from(resume.capsule).toString('utf8'));
  if (format !== FORMAT) throw new Error(`checkpoint format ${format} is not known`);
  return { state, asked: new Map(Object.entries(asked)) };
}
