// The official TypeScript SDK, 1.x line, as a client that subscribes to note://text: updates.mjs URL.
//
// The bearer token is in ASP_TOKEN. Subscribes, has the tool `set` write the note until it is told of the change, reads it,
// unsubscribes, and prints {"updated": [URIs], "read": text} as one line of JSON.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const [url] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${process.env.ASP_TOKEN}` };
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
const client = new Client({ name: 'asp-e2e-updates', version: '1.0.0' }, { capabilities: {} });
const updated = [];
const told = new Promise((resolve) => {
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => resolve(updated.push(params.uri)));
});
await client.connect(transport);
const uri = 'note://text';
await client.subscribeResource({ uri });
// The upstream is subscribed to after the answer: what changes before that is told to nobody.
for (let number = 1; updated.length === 0; number += 1) {
  await client.callTool({ name: 'set', arguments: { text: `note ${number}` } });
  await Promise.race([told, new Promise((resolve) => setTimeout(resolve, 100))]);
}
const { contents } = await client.readResource({ uri });
await client.unsubscribeResource({ uri });
await transport.terminateSession();
await client.close();
console.log(JSON.stringify({ updated: [...new Set(updated)], read: contents[0].text }));
