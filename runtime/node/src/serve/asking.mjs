//! What the handler of a resource or prompt asks: it is left where it asks, and called again from its start with all
//! answers so far. What it asks within one turn of the event loop is asked together.
import { createQuestions } from '../call/ask.mjs';

/** Returns {elicit, delegate, converse} for a context, and `asked`, a promise of what they ask that is not answered yet. */
export function createAsking(request, plugin) {
  const found = { elicitations: [], delegations: [] };
  let tell;
  const asked = new Promise((resolve) => {
    tell = resolve;
  });
  const send = ({ elicitation, delegation }) => {
    if (elicitation) found.elicitations.push(elicitation);
    else found.delegations.push(delegation);
    setImmediate(() => tell(found));
  };
  const { elicit, delegate, converse } = createQuestions({
    requestId: request.requestId,
    taskId: '',
    plugin,
    request: { resume: request.given },
    checkYield() {},
    // The answer comes to another call of the handler.
    questions: { open: () => new Promise(() => {}), refuse() {} },
    out: { send },
  });
  return { asked, elicit, delegate, converse };
}
