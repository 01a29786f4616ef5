// The official TypeScript client, 2.x line, as a client: client.mjs URL MODE TOOL ARGUMENTS.
//
// MODE is `legacy`, `auto` or a protocol version to insist on. The bearer token is in ASP_TOKEN. Where ASP_BRIDGE is a
// path of `asp`, it is reached by `asp mcp` as a child, else over HTTP. Lists the tools, calls TOOL with the JSON object ARGUMENTS and prints {"protocol", "tools", "result"} as one
// line of JSON.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [url, mode, tool, input] = process.argv.slice(2);
const { ASP_BRIDGE, ASP_TOKEN } = process.env;
const [, server] = new URL(url).pathname.split('/');
const transport = ASP_BRIDGE
  ? new StdioClientTransport({
      command: ASP_BRIDGE,
      args: ['mcp', '--server', server, '--url', new URL(url).origin],
      env: { ASP_TOKEN },
    })
  : new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${ASP_TOKEN}` } } });
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
