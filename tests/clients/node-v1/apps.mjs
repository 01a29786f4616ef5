// The official TypeScript SDK, 1.x line, as a host of MCP Apps: apps.mjs URL.
//
// The bearer token is in ASP_TOKEN. Lists tools and resources, reads each page that a tool names, calls each tool without
// arguments, whose user agrees where the platform asks (tools that do not say what they do may destroy something), and prints
// all of it as one line of JSON.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [url] = process.argv.slice(2);
const headers = process.env.ASP_TOKEN ? { Authorization: `Bearer ${process.env.ASP_TOKEN}` } : {};
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
const extensions = { 'io.modelcontextprotocol/ui': { mimeTypes: ['text/html;profile=mcp-app'] } };
const client = new Client({ name: 'asp-e2e-apps', version: '1.0.0' }, { capabilities: { elicitation: {}, extensions } });
client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { approve: true } }));
await client.connect(transport);
const { tools } = await client.listTools();
const { resources } = await client.listResources();
const pages = {};
const results = {};
for (const { name, _meta } of tools) {
  const uri = _meta?.ui?.resourceUri;
  if (uri) pages[uri] = (await client.readResource({ uri })).contents;
  results[name] = await client.callTool({ name, arguments: {} });
}
await client.close();
// Absent, it is false (MCP, CallToolResult).
for (const result of Object.values(results)) if (result.isError === false) delete result.isError;
// Without the time of day.
const seen = JSON.stringify({ tools, resources, pages, results });
console.log(seen.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME'));
