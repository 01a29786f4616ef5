// The official TypeScript client, 2.x line, as a client: client.mjs URL MODE TOOL ARGUMENTS.
//
// MODE is `legacy`, `auto` or a protocol version to insist on. The bearer token is in ASP_TOKEN. Lists
// the tools, calls TOOL with the JSON object ARGUMENTS and prints {"protocol", "tools", "result"} as one
// line of JSON.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, mode, tool, input] = process.argv.slice(2);
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${process.env.ASP_TOKEN}` } },
});
const client = new Client(
  { name: 'asp-e2e-node-v2', version: '1.0.0' },
  { versionNegotiation: { mode: ['legacy', 'auto'].includes(mode) ? mode : { pin: mode } } },
);
await client.connect(transport);
const { tools } = await client.listTools();
const result = await client.callTool({ name: tool, arguments: JSON.parse(input) });
const protocol = client.getNegotiatedProtocolVersion();
await client.close();
console.log(JSON.stringify({ protocol, tools: tools.map((entry) => entry.name), result }));
