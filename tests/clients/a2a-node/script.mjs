// The official JavaScript SDK of A2A 1.0 goes through what a client can do: script.mjs EDGE SERVER VERSION BINDING.
//
// VERSION is `1.0`, or `0.3` for the SDK's mode for it; BINDING is `JSONRPC`, `HTTP+JSON` or `GRPC`. The bearer token is in
// ASP_TOKEN. ../node/a2a_steps.mjs has the steps and what is printed.
import { randomUUID } from 'node:crypto';

import { Role, TaskState, verifyAgentCardSignature } from '@a2a-js/sdk';
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

const [edge, server, version, binding] = process.argv.slice(2);
const fetchImpl = createAuthenticatingFetchWithRetry(fetch, {
  headers: async () => ({ Authorization: `Bearer ${process.env.ASP_TOKEN}` }),
  shouldRetryWithHeaders: async () => undefined,
});
const options = { fetchImpl, legacyCompat: { enabled: true } };
const factory = new ClientFactory({
  transports: [
    new JsonRpcTransportFactory(options),
    new RestTransportFactory(options),
    new GrpcTransportFactory({ grpcCallOptions: callOptions(grpc), legacyCompat: options.legacyCompat }),
  ],
  cardResolver: new DefaultAgentCardResolver(options),
});

const found = await new DefaultAgentCardResolver(options).resolve(`${edge}/${server}/`);
// The SDK takes 1.0 wherever a card offers it, so what is to be spoken is all that it is shown.
const supportedInterfaces = found.supportedInterfaces.filter(
  ({ protocolVersion, protocolBinding }) => protocolVersion === version && protocolBinding === binding,
);
const card = { ...found, supportedInterfaces };
const client = await factory.createFromAgentCard(card);

const stateName = (state) => TaskState[state].replace('TASK_STATE_', '').toLowerCase().replaceAll('_', '-');
const textOf = (message) =>
  (message?.parts ?? []).map(({ content }) => (content?.$case === 'text' ? content.value : '')).join('');
const plain = (answer) =>
  'messageId' in answer
    ? { kind: 'message', text: textOf(answer) }
    : {
        kind: 'task',
        id: answer.id,
        context: answer.contextId,
        state: stateName(answer.status.state),
        text: textOf(answer.status.message),
        parts: answer.artifacts.flatMap(({ parts }) => parts.map(({ content }) => content.$case)),
      };
const plainEvents = async function* (events) {
  for await (const { payload } of events) {
    const kind = payload.$case.replace('Update', '-update');
    const status = payload.value.status;
    yield { kind, state: status && stateName(status.state) };
  }
};
const request = (text, task, returnImmediately = false) => ({
  tenant: '',
  message: {
    messageId: randomUUID(),
    contextId: task?.context ?? '',
    taskId: task?.id ?? '',
    role: Role.ROLE_USER,
    parts: [{ content: { $case: 'text', value: text }, filename: '', mediaType: '' }],
    extensions: [],
    referenceTaskIds: [],
  },
  configuration: { acceptedOutputModes: [], returnImmediately },
});

// Standard output is for the steps; the SDK says there which signature does not fit.
console.debug = console.error;

// The key of a signature, from the JWKS that its header names.
const keyOf = async (kid, jku) => {
  const { keys } = await (await fetch(jku)).json();
  return keys.find((key) => key.kid === kid);
};

const agent = {
  card: async () => ({
    name: found.name,
    url: supportedInterfaces[0].url,
    skills: found.skills.map(({ id }) => id),
    extended: (await client.getAgentCard()).skills.map(({ id }) => id),
  }),
  signature: async () => {
    const verify = verifyAgentCardSignature(keyOf);
    await verify(found);
    const changed = await verify({ ...found, name: `${found.name}.` }).then(() => 'accepted', () => 'refused');
    return { accepted: true, changed };
  },
  send: async (...message) => plain(await client.sendMessage(request(...message))),
  stream: (text) => plainEvents(client.sendMessageStream(request(text))),
  get: async (id) => plain(await client.getTask({ tenant: '', id })),
  cancel: async (id) => plain(await client.cancelTask({ tenant: '', id })),
  subscribe: (id) => plainEvents(client.resubscribeTask({ tenant: '', id })),
  push: (taskId) =>
    client.createTaskPushNotificationConfig({ tenant: '', taskId, id: 'hook', url: process.env.ASP_HOOK, token: '' }),
};
if (version === '1.0') {
  agent.list = async (contextId) => {
    const { tasks } = await client.listTasks({ tenant: '', contextId, status: TaskState.TASK_STATE_UNSPECIFIED, pageToken: '' });
    return tasks.map(({ id }) => id);
  };
}
await run(agent);
