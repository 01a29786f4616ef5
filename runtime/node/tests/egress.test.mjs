//! `fetch` of a plugin with allowed domains goes through the proxy its environment names, http and https.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { read, startWorker } from './harness.mjs';

let proxy;
let seen;
before(async () => {
  seen = [];
  proxy = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    response.end('through the proxy');
  });
  // A tunnel that is refused still shows what was asked for.
  proxy.on('connect', (request, socket) => {
    seen.push(`CONNECT ${request.url}`);
    socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
});
after(() => new Promise((resolve) => proxy.close(resolve)));

test('a request goes to the proxy and never to the host it names', async () => {
  const url = `http://127.0.0.1:${proxy.address().port}`;
  const env = { HTTP_PROXY: url, HTTPS_PROXY: url, http_proxy: url, https_proxy: url };
  const worker = await (await startWorker('acts.mjs', {}, { env })).session();
  worker.invoke('1', { act: 'fetch', url: 'https://api.example/v1' });
  assert.equal((await worker.result('1')).failed.code, 'INTERNAL');
  worker.invoke('2', { act: 'fetch', url: 'http://api.example/v1' });
  const { completed, failed } = await worker.result('2');
  assert.ok(seen.includes('CONNECT api.example:443'), seen.join());
  assert.ok(seen.includes('GET http://api.example/v1') || seen.includes('CONNECT api.example:80'), seen.join());
  if (completed) assert.deepEqual(read(completed.output), { status: 200, text: 'through the proxy' });
  else assert.equal(failed.code, 'INTERNAL');
  await worker.stop();
});

test('without a proxy in the environment a request goes to the host itself', async () => {
  const worker = await (await startWorker('acts.mjs')).session();
  seen.length = 0;
  worker.invoke('1', { act: 'fetch', url: `http://127.0.0.1:${proxy.address().port}/direct` });
  await worker.result('1');
  assert.deepEqual(seen, ['GET /direct']);
  await worker.stop();
});
