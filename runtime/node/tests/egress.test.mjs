//! `fetch` of a plugin with allowed domains goes through the proxy its environment names, http and https.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { read, startWorker } from './harness.mjs';

let proxy;
let origin;
let seen;
before(async () => {
  seen = [];
  origin = createServer((request, response) => response.end(`${request.headers.host}${request.url}`));
  proxy = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    response.end('api.example/v1');
  });
  // Refuses what is not for port 80 and takes the rest to the origin, whatever its name.
  proxy.on('connect', (request, socket) => {
    seen.push(`CONNECT ${request.url}`);
    if (!request.url.endsWith(':80')) {
      socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
      return;
    }
    const upstream = connect(origin.address().port, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      upstream.pipe(socket).pipe(upstream);
    });
    upstream.on('error', () => socket.destroy());
    socket.on('error', () => upstream.destroy());
  });
  for (const server of [origin, proxy]) await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
});
after(() => {
  for (const server of [origin, proxy]) server.close();
});

test('a request goes to the proxy and never to the host it names', async () => {
  const url = `http://127.0.0.1:${proxy.address().port}`;
  const env = { HTTP_PROXY: url, HTTPS_PROXY: url, http_proxy: url, https_proxy: url };
  const worker = await (await startWorker('acts.mjs', {}, { env })).session();
  worker.invoke('1', { act: 'fetch', url: 'https://api.example/v1' });
  assert.equal((await worker.result('1')).failed.code, 'INTERNAL');
  assert.deepEqual(seen, ['CONNECT api.example:443']);
  worker.invoke('2', { act: 'fetch', url: 'http://api.example/v1' });
  const { completed } = await worker.result('2');
  assert.deepEqual(read(completed.output), { status: 200, text: 'api.example/v1' });
  assert.equal(seen.length, 2);
  await worker.stop();
});

test('without a proxy in the environment a request goes to the host itself', async () => {
  const worker = await (await startWorker('acts.mjs')).session();
  seen.length = 0;
  const { port } = origin.address();
  worker.invoke('1', { act: 'fetch', url: `http://127.0.0.1:${port}/direct` });
  assert.deepEqual(read((await worker.result('1')).completed.output), { status: 200, text: `127.0.0.1:${port}/direct` });
  assert.deepEqual(seen, []);
  await worker.stop();
});
