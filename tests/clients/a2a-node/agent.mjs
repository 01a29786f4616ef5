// An agent made with the official JavaScript SDK of A2A 1.0.
//
// It serves each version over each binding at a path of its own, such as `/1.0/jsonrpc`, whose card names no other interface.
// Prints a line with its port, and one for each task that is cancelled. ../node/a2a_skills.mjs has the skills.
import { randomUUID } from 'node:crypto';

import { AgentCard, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from '@a2a-js/sdk/server/express';
import express from 'express';

import { DESCRIPTIONS, executor, serve } from '../node/a2a_skills.mjs';

const BINDINGS = { jsonrpc: 'JSONRPC', rest: 'HTTP+JSON' };

const read = ({ userMessage, task, taskId, contextId }) => ({
  id: taskId,
  contextId,
  task,
  skill: userMessage.metadata?.skill,
  text: userMessage.parts.map(({ content }) => (content?.$case === 'text' ? content.value : '')).join(''),
  isAnswer: task !== undefined,
});

const said = (task, text) => ({
  messageId: randomUUID(),
  role: 'ROLE_AGENT',
  parts: [{ text }],
  ...(task && { taskId: task.id, contextId: task.contextId }),
});

const publish = (bus, task, step, value, isFirstPiece) => {
  const status = (state, text) => {
    const message = text && said(task, text);
    const update = { taskId: task.id, contextId: task.contextId, status: { state: `TASK_STATE_${state}`, message } };
    bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON(update)));
  };
  const artifact = (artifactId, part, append = false) => {
    const update = { taskId: task.id, contextId: task.contextId, artifact: { artifactId, parts: [part] }, append };
    bus.publish(AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON(update)));
  };
  const started = { id: task.id, contextId: task.contextId, status: { state: 'TASK_STATE_SUBMITTED' } };
  switch (step) {
    case 'message': return bus.publish(AgentEvent.message(Message.fromJSON(said(undefined, value))));
    // The first event must be a task, also after an answer.
    case 'started': return bus.publish(AgentEvent.task(Task.fromJSON(started)));
    case 'resumed': return bus.publish(AgentEvent.task(task.task));
    case 'work': return status('WORKING', value);
    case 'piece': return artifact('words', { text: value }, !isFirstPiece);
    case 'data': return artifact('numbers', { data: value });
    case 'ask': return status('INPUT_REQUIRED', value);
    case 'cancelled': return status('CANCELED');
    default: return status('COMPLETED');
  }
};

const app = express();
serve(app, (origin) => {
  for (const version of ['1.0', '0.3']) {
    for (const [path, protocolBinding] of Object.entries(BINDINGS)) {
      const base = `/${version}/${path}`;
      const isRpc = path === 'jsonrpc';
      const card = AgentCard.fromJSON({
        name: 'JavaScript agent',
        description: 'An agent of the tests.',
        version: '1.0.0',
        supportedInterfaces: [{ url: `${origin}${base}${isRpc ? '/rpc' : ''}`, protocolBinding, protocolVersion: version }],
        capabilities: { streaming: true },
        defaultInputModes: ['text/plain'],
        defaultOutputModes: ['text/plain', 'application/json'],
        skills: Object.entries(DESCRIPTIONS).map(([id, description]) => ({ id, name: id, description, tags: ['test'] })),
      });
      const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor(read, publish));
      const legacyCompat = { enabled: version === '0.3' };
      const options = { requestHandler, userBuilder: UserBuilder.noAuthentication, legacyCompat };
      app.use(`${base}/.well-known/agent-card.json`, agentCardHandler({ agentCardProvider: requestHandler, legacyCompat }));
      if (isRpc) app.use(`${base}/rpc`, jsonRpcHandler(options));
      else app.use(base, restHandler(options));
    }
  }
});
