// The last release of the official JavaScript SDK for A2A 0.3 goes through what a client can do: script.mjs EDGE SERVER BINDING.
//
// BINDING is `JSONRPC`, `HTTP+JSON` or `GRPC`. The bearer token is in ASP_TOKEN. ../node/a2a_steps.mjs has the steps and what
// is printed.
import { randomUUID } from 'node:crypto';

import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  createAuthenticatingFetchWithRetry,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import * as grpc from '@grpc/grpc-js';

import { run } from '../node/a2a_steps.mjs';
import { callOptions } from '../node/grpc_token.mjs';

const [edge, server, binding] = process.argv.slice(2);
const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
  headers: async () => ({ Authorization: `Bearer ${process.env.ASP_TOKEN}` }),
  shouldRetryWithHeaders: async () => undefined,
});
const factory = new ClientFactory({
  transports: [
    new JsonRpcTransportFactory({ fetchImpl }),
    new RestTransportFactory({ fetchImpl }),
    new GrpcTransportFactory({ grpcCallOptions: callOptions(grpc) }),
  ],
  preferredTransports: [binding],
});

const card = await new DefaultAgentCardResolver({ fetchImpl }).resolve(`${edge}/${server}/`);
const client = await factory.createFromAgentCard(card);

const textOf = (message) => (message?.parts ?? []).map(({ text }) => text ?? '').join('');
const partKind = ({ kind, file }) => (kind === 'file' ? (file.uri ? 'url' : 'raw') : kind);
const plain = (answer) =>
  answer.kind === 'message'
    ? { kind: 'message', text: textOf(answer) }
    : {
        kind: 'task',
        id: answer.id,
        context: answer.contextId,
        state: answer.status.state,
        text: textOf(answer.status.message),
        parts: (answer.artifacts ?? []).flatMap(({ parts }) => parts.map(partKind)),
      };
const plainEvents = async function* (events) {
  for await (const { kind, status } of events) yield { kind, state: status?.state };
};
const request = (text, task, immediately = false) => ({
  message: {
    kind: 'message',
    messageId: randomUUID(),
    role: 'user',
    parts: [{ kind: 'text', text }],
    ...(task && { taskId: task.id, contextId: task.context }),
  },
  configuration: { blocking: !immediately },
});

await run({
  card: async () => ({
    name: card.name,
    url: card.url,
    skills: card.skills.map(({ id }) => id),
    extended: (await client.getAgentCard()).skills.map(({ id }) => id),
  }),
  send: async (...message) => plain(await client.sendMessage(request(...message))),
  stream: (text) => plainEvents(client.sendMessageStream(request(text))),
  get: async (id) => plain(await client.getTask({ id })),
  cancel: async (id) => plain(await client.cancelTask({ id })),
  subscribe: (id) => plainEvents(client.resubscribeTask({ id })),
  push: (taskId) =>
    client.setTaskPushNotificationConfig({
      taskId,
      pushNotificationConfig: { id: 'hook', url: process.env.ASP_HOOK },
    }),
});
