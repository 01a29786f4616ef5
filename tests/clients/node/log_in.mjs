// A login, for both lines of the SDK.
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';

// Prints `LOGIN <authorization URL>` and reads the address to which its user was sent back. Calls `hello`, then `write`, which
// wants a scope that the first login did not ask for, then `hello` again when its token has ended. Prints {"results", "logins",
// "refreshed", "scope"} as one line of JSON.
//
// `open(authProvider)` makes a client and its transport; `finish(transport, parameters)` goes on with what the user was sent
// back with. `hidesRefreshToken` is for a line that refreshes its token where it should ask for a wider one: an app keeps the
// refresh token from it meanwhile.
export const logIn = async ({ name, UnauthorizedError, open, finish, hidesRefreshToken = false }) => {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const state = `state-of-${name}`;
  const kept = { given: 0, logins: 0 };
  const authProvider = {
    redirectUrl: 'http://127.0.0.1:9/callback',
    clientMetadata: { client_name: name, redirect_uris: ['http://127.0.0.1:9/callback'] },
    state: () => state,
    clientInformation: () => kept.client,
    saveClientInformation: (client) => void (kept.client = client),
    tokens: () => (hidesRefreshToken && kept.asksForMore ? { ...kept.tokens, refresh_token: undefined } : kept.tokens),
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

  let client;
  let transport;
  const connect = async () => {
    ({ client, transport } = open(authProvider));
    await client.connect(transport);
  };

  // Does it again when its user has logged in.
  const loggedIn = async (work) => {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof UnauthorizedError)) throw error;
      const { value } = await lines.next();
      const given = new URL(value).searchParams;
      if (given.get('state') !== state) throw new Error('the state has changed');
      await finish(transport, given);
      return await work();
    }
  };

  await loggedIn(connect);
  const results = [];
  const call = async (tool, message) => {
    const answer = await loggedIn(() => client.callTool({ name: tool, arguments: { message } }));
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
};
