// The official TypeScript client, 2.x line, logs in: login.mjs URL MODE.
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { logIn } from '../node/log_in.mjs';

const [url, mode] = process.argv.slice(2);
await logIn({
  name: 'node-2',
  UnauthorizedError,
  open: (authProvider) => ({
    client: new Client(
      { name: 'asp-e2e-node-v2', version: '1.0.0' },
      { versionNegotiation: { mode: ['legacy', 'auto'].includes(mode) ? mode : { pin: mode } } },
    ),
    transport: new StreamableHTTPClientTransport(new URL(url), { authProvider }),
  }),
  finish: (transport, given) => transport.finishAuth(given),
});
