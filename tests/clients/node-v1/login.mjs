// The official TypeScript client, 1.x line, logs in: login.mjs URL.
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { logIn } from '../node/log_in.mjs';

const [url] = process.argv.slice(2);
await logIn({
  name: 'node-1',
  UnauthorizedError,
  open: (authProvider) => ({
    client: new Client({ name: 'asp-e2e-node-v1', version: '1.0.0' }),
    transport: new StreamableHTTPClientTransport(new URL(url), { authProvider }),
  }),
  finish: (transport, given) => transport.finishAuth(given.get('code')),
  hidesRefreshToken: true,
});
