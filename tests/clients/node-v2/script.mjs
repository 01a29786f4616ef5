// The official TypeScript client, 2.x line, goes through what a client can do: script.mjs URL REVISION
// TRACE.
//
// REVISION is the one to insist on. The server is the platform's `conformance`. The call that is given up carries the
// traceparent TRACE. Prints one line of JSON: what each step came to, and what it was asked.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { answers, listeners, steps } from '../node/steps.mjs';

const [url, revision, traceparent] = process.argv.slice(2);
const isLegacy = revision < '2026-07-28';
// Before 2025-06-18 nobody could be asked.
const canBeAsked = revision >= '2025-06-18';
const transport = new StreamableHTTPClientTransport(new URL(url));
const client = new Client(
  { name: 'asp-e2e-script-v2', version: '1.0.0' },
  {
    capabilities: { sampling: {}, roots: { listChanged: true }, ...(canBeAsked ? { elicitation: {} } : {}) },
    ...(isLegacy ? { supportedProtocolVersions: [revision] } : {}),
    versionNegotiation: { mode: isLegacy ? 'legacy' : { pin: revision } },
  },
);
for (const [method, answer] of Object.entries(answers)) {
  if (canBeAsked || method !== 'elicitation/create') client.setRequestHandler(method, answer);
}
for (const [method, listener] of Object.entries(listeners)) client.setNotificationHandler(method, listener);

await client.connect(transport);
const callTool = (call, options) => client.callTool(call, options);
const end = async () => {
  const protocol = client.getNegotiatedProtocolVersion();
  await client.close();
  return protocol;
};
await steps(client, { isLegacy, canBeAsked, traceparent, callTool, end });
