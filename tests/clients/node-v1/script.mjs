// The official TypeScript SDK, 1.x line, goes through what a client can do: script.mjs URL REVISION TRACE.
//
// The server is the platform's `conformance`; this client knows one REVISION to propose, the latest with a handshake. The
// call that is given up carries the traceparent TRACE. Prints one line of JSON: what each step came to, and what it was
// asked.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { answers, listeners, steps } from '../node/steps.mjs';

const [url, , traceparent] = process.argv.slice(2);
const transport = new StreamableHTTPClientTransport(new URL(url));
const client = new Client(
  { name: 'asp-e2e-script-v1', version: '1.0.0' },
  { capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } } },
);
client.setRequestHandler(CreateMessageRequestSchema, answers['sampling/createMessage']);
client.setRequestHandler(ElicitRequestSchema, answers['elicitation/create']);
client.setRequestHandler(ListRootsRequestSchema, answers['roots/list']);
client.setNotificationHandler(LoggingMessageNotificationSchema, listeners['notifications/message']);
client.setNotificationHandler(ResourceUpdatedNotificationSchema, listeners['notifications/resources/updated']);

await client.connect(transport);
const callTool = (call, options) => client.callTool(call, undefined, options);
const end = async () => {
  const protocol = transport.protocolVersion;
  await transport.terminateSession();
  await client.close();
  return protocol;
};
await steps(client, { isLegacy: true, canBeAsked: true, traceparent, callTool, end });
