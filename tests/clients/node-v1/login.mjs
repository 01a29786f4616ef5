// The official TypeScript client, 1.x line, logs in: login.mjs URL.
//
// It prints `LOGIN <authorization URL>` and reads the address to which its user was sent back. Calls `hello`, then
// `write`, which wants a scope that the first login did not ask for, then `hello` again when its token has ended. Prints
// {"results", "logins", "refreshed", "scope"} as one line of JSON.
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [url] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const kept = { given: 0, logins: 0 };
const authProvider = {
  redirectUrl: 'http://127.0.0.1:9/callback',
  clientMetadata: { client_name: 'Node 1', redirect_uris: ['http://127.0.0.1:9/callback'] },
  state: () => 'state-of-node-1',
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  // This line refreshes its token where it should ask for a wider one: an app keeps the refresh token from it meanwhile.
  tokens: () => (kept.asksForMore ? { ...kept.tokens, refresh_token: undefined } : kept.tokens),
  saveTokens: (tokens) => {
    kept.tokens = tokens;
    kept.given += 1;
  },
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (discovery) => void (kept.discovery = discovery),
  redirectToAuthorization: (address) => {
    kept.logins += 1;
    console.log('LOGIN', String(address));
  },
};

let transport;
const connect = async () => {
  transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
  const client = new Client({ name: 'asp-e2e-node-v1', version: '1.0.0' });
  await client.connect(transport);
  return client;
};

// Does it again when its user has logged in.
const loggedIn = async (work) => {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    const { value } = await lines.next();
    const given = new URL(value).searchParams;
    if (given.get('state') !== 'state-of-node-1') throw new Error('the state has changed');
    await transport.finishAuth(given.get('code'));
    return await work();
  }
};

const client = await loggedIn(connect);
const results = [];
const call = async (name, message) => {
  const answer = await loggedIn(() => client.callTool({ name, arguments: { message } }));
  results.push(answer.content[0].text);
};
await call('hello', 'hello');
kept.asksForMore = true;
await call('write', 'write');
kept.asksForMore = false;
const { given, logins } = kept;
await wait((kept.tokens.expires_in + 12) * 1000);
await call('hello', 'again');
if (kept.logins !== logins) throw new Error('a token that has ended is refreshed, without its user');
await client.close();
console.log(JSON.stringify({ results, logins, refreshed: kept.given - given, scope: kept.tokens.scope }));
process.exit(0);
