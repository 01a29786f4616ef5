// An agent made with the last release of the official JavaScript SDK for A2A 0.3: as ../a2a-node/agent.mjs, at `/0.3/jsonrpc` and
// `/0.3/rest`.
import { randomUUID } from 'node:crypto';

import { DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from '@a2a-js/sdk/server/express';
import express from 'express';

import { DESCRIPTIONS, executor, serve } from '../node/a2a_skills.mjs';

const BINDINGS = { jsonrpc: 'JSONRPC', rest: 'HTTP+JSON' };

const read = ({ userMessage, task, taskId, contextId }) => ({
  id: taskId,
  contextId,
  skill: userMessage.metadata?.skill,
  text: userMessage.parts.map(({ text }) => text ?? '').join(''),
  isAnswer: task !== undefined,
});

const said = (task, text) => ({
  kind: 'message',
  messageId: randomUUID(),
  role: 'agent',
  parts: [{ kind: 'text', text }],
  ...(task && { taskId: task.id, contextId: task.contextId }),
});

const publish = (bus, { id, contextId }, step, value, isFirstPiece) => {
  const ids = { taskId: id, contextId };
  const status = (state, final, text) =>
    bus.publish({
      kind: 'status-update',
      ...ids,
      status: { state, timestamp: new Date().toISOString(), ...(text && { message: said({ id, contextId }, text) }) },
      final,
    });
  const artifact = (artifactId, part, append = false) =>
    bus.publish({ kind: 'artifact-update', ...ids, artifact: { artifactId, parts: [part] }, append });
  switch (step) {
    case 'message': return bus.publish(said(undefined, value));
    case 'started': return bus.publish({ kind: 'task', id, contextId, status: { state: 'submitted' } });
    case 'resumed': return status('working', false);
    case 'work': return status('working', false, value);
    case 'piece': return artifact('words', { kind: 'text', text: value }, !isFirstPiece);
    case 'data': return artifact('numbers', { kind: 'data', data: value });
    case 'ask': return status('input-required', true, value);
    case 'cancelled': return status('canceled', true);
    default: return status('completed', true);
  }
};

const app = express();
serve(app, (origin) => {
  for (const [path, preferredTransport] of Object.entries(BINDINGS)) {
    const base = `/0.3/${path}`;
    const isRpc = path === 'jsonrpc';
    const card = {
      name: 'JavaScript agent of 0.3',
      description: 'An agent of the tests.',
      version: '1.0.0',
      protocolVersion: '0.3.0',
      url: `${origin}${base}${isRpc ? '/rpc' : ''}`,
      preferredTransport,
      capabilities: { streaming: true },
      defaultInputModes: ['text/plain'],
      defaultOutputModes: ['text/plain', 'application/json'],
      skills: Object.entries(DESCRIPTIONS).map(([id, description]) => ({ id, name: id, description, tags: ['test'] })),
    };
    const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor(read, publish));
    const options = { requestHandler, userBuilder: UserBuilder.noAuthentication };
    app.use(`${base}/.well-known/agent-card.json`, agentCardHandler({ agentCardProvider: requestHandler }));
    if (isRpc) app.use(`${base}/rpc`, jsonRpcHandler(options));
    else app.use(base, restHandler(options));
  }
});
