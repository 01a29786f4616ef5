// The official TypeScript client, 2.x line, calls tools one after the other: calls.mjs URL REVISION CALLS.
//
// REVISION is the one to insist on. CALLS is a list in JSON: each call has `name` and `arguments`, `answers` to what the server
// asks, in their order, and `giveUp` if it is cancelled at its first progress. The bearer token is in ASP_TOKEN. Prints one line of
// JSON: for each call its `result` or `error`, the texts that it was `asked`, and those of its `progress`.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, revision, calls] = process.argv.slice(2);
const isLegacy = revision < '2026-07-28';
const headers = { Authorization: `Bearer ${process.env.ASP_TOKEN}` };
const client = new Client(
  { name: 'asp-e2e-calls-v2', version: '1.0.0' },
  {
    capabilities: { elicitation: {} },
    ...(isLegacy ? { supportedProtocolVersions: [revision] } : {}),
    versionNegotiation: { mode: isLegacy ? 'legacy' : { pin: revision } },
  },
);
let answers;
let asked;
client.setRequestHandler('elicitation/create', ({ params }) => {
  asked.push(params.message);
  const content = answers.shift();
  return content ? { action: 'accept', content } : { action: 'decline' };
});

// Cancels under way, which closing the client would end before they are sent.
const cancels = [];
const send = (to, init) => {
  const sent = fetch(to, init);
  if (typeof init?.body === 'string' && init.body.includes('notifications/cancelled')) cancels.push(sent);
  return sent;
};
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers }, fetch: send }));
const seen = [];
for (const { name, arguments: input, answers: own = [], giveUp } of JSON.parse(calls)) {
  answers = [...own];
  asked = [];
  const progress = [];
  const cancel = new AbortController();
  const options = {
    signal: cancel.signal,
    onprogress: ({ message }) => {
      progress.push(message);
      if (giveUp) cancel.abort('enough');
    },
  };
  const outcome = await client.callTool({ name, arguments: input }, options).then(
    (result) => ({ result }),
    (error) => ({ error: String(error.message) }),
  );
  seen.push({ ...outcome, asked, progress });
}
await Promise.allSettled(cancels);
await client.close();
console.log(JSON.stringify(seen));
