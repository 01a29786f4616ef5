// The official TypeScript client, 2.x line, as a client: client.mjs URL MODE TOOL ARGUMENTS.
//
// MODE is `legacy`, `auto` or a protocol version to insist on. The bearer token is in ASP_TOKEN. Where ASP_BRIDGE is a
// path of `asp`, it is reached by `asp mcp` as a child, else over HTTP. Lists the tools, calls TOOL with the JSON object ARGUMENTS and prints {"protocol", "tools", "result"} as one
// line of JSON. With ASP_BREAK the child is killed in the middle of a call before that, and the line has
// {"broken": how that call ended} too; the rest is done by a new child.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [url, mode, tool, input] = process.argv.slice(2);
const { ASP_BREAK, ASP_BRIDGE, ASP_TOKEN } = process.env;
const [, server] = new URL(url).pathname.split('/');

const connect = async () => {
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
  return { client, transport };
};

const broken = async () => {
  const { client, transport } = await connect();
  const onprogress = () => process.kill(transport.pid, 'SIGKILL');
  const calling = client.callTool({ name: 'count', arguments: { to: 100, delayMs: 500 } }, { onprogress });
  const ended = await calling.then(() => 'answered', () => 'failed');
  await client.close();
  return ended;
};

const ended = ASP_BREAK ? { broken: await broken() } : {};
const { client } = await connect();
const { tools } = await client.listTools();
const result = await client.callTool({ name: tool, arguments: JSON.parse(input) });
const protocol = client.getNegotiatedProtocolVersion();
await client.close();
console.log(JSON.stringify({ protocol, tools: tools.map((entry) => entry.name), result, ...ended }));
