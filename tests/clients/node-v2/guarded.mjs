// A service that takes a call only with the platform's token for it: as tests/services/guarded.py, with jose.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

import { createRemoteJWKSet, jwtVerify } from 'jose';

let config;
let keys;

async function caller(header = '') {
  if (!config) {
    config = JSON.parse(readFileSync(process.argv[2], 'utf8'));
    keys = createRemoteJWKSet(new URL(config.keys), { timeoutDuration: 30_000 });
  }
  const [scheme, token] = header.split(' ');
  if (scheme.toLowerCase() !== 'bearer') throw new Error('no bearer token');
  const { payload } = await jwtVerify(token, keys, {
    algorithms: config.algorithms ?? ['ES256'],
    typ: config.typ?.[0] ?? 'at+jwt',
    issuer: config.issuer,
    audience: config.audience,
    requiredClaims: ['exp', 'iat', 'sub'],
  });
  return payload;
}

const server = createServer((request, response) => {
  console.log(JSON.stringify({ seen: Object.keys(request.headers) }));
  request.resume().on('end', async () => {
    let status = 200;
    let answer;
    try {
      const { sub, org, scope, caller_issuer, preferred_username } = await caller(request.headers.authorization);
      answer = { sub, org, scope, caller_issuer, preferred_username };
    } catch (error) {
      status = 401;
      answer = { error: String(error.message) };
    }
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
  });
});
server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ port: server.address().port })));
