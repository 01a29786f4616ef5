// The official TypeScript SDK, 1.x line, as a client: client.mjs URL TOOL ARGUMENTS [progress].
//
// The bearer token is in ASP_TOKEN. Lists the tools, calls TOOL with the JSON object ARGUMENTS and
// prints {"protocol", "tools", "result"} as one line of JSON; with `progress`, each progress before as a line {"progress"}.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [url, tool, input, shows] = process.argv.slice(2);
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${process.env.ASP_TOKEN}` } },
});
const client = new Client({ name: 'asp-e2e-node-v1', version: '1.0.0' });
await client.connect(transport);
const { tools } = await client.listTools();
const onprogress = shows && (({ progress }) => console.log(JSON.stringify({ progress })));
const result = await client.callTool({ name: tool, arguments: JSON.parse(input) }, undefined, { onprogress });
const protocol = transport.protocolVersion;
await transport.terminateSession();
await client.close();
console.log(JSON.stringify({ protocol, tools: tools.map((entry) => entry.name), result }));
