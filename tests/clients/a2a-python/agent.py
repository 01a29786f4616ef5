"""An agent made with the official Python SDK of A2A 1.0.

It serves each version over each binding at a path of its own, such as `/1.0/jsonrpc`, whose card names no other interface.
Prints a line with its port, and one for each task that is cancelled. skills.py has the skills.
"""

from a2a.helpers import get_message_text, new_data_part, new_task, new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Role, TaskState
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.routing import Mount

from skills import DESCRIPTIONS, answered, say, serve, steps

BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        is_started = context.current_task is not None
        taken = answered(text) if is_started else steps(MessageToDict(context.message.metadata).get("skill"), text)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        is_continued = False
        async for step, value in taken:
            if step == "message":
                await event_queue.enqueue_event(new_text_message(value, role=Role.ROLE_AGENT))
                return
            if not is_started:
                task = new_task(context.task_id, context.context_id, TaskState.TASK_STATE_SUBMITTED)
                await event_queue.enqueue_event(task)
                is_started = True
            if step == "work":
                await updater.start_work(updater.new_agent_message([Part(text=value)]))
            elif step == "piece":
                await updater.add_artifact([Part(text=value)], artifact_id="words", append=is_continued)
                is_continued = True
            elif step == "data":
                await updater.add_artifact([new_data_part(value)], artifact_id="numbers")
            elif step == "ask":
                await updater.requires_input(updater.new_agent_message([Part(text=value)]))
                return
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()
        say(cancelled=get_message_text(context.current_task.status.message))


def agent(origin, version, path):
    base = f"/{version}/{path}"
    url = f"{origin}{base}/rpc" if path == "jsonrpc" else origin + base
    skills = [AgentSkill(id=name, name=name.title(), description=text, tags=["test"]) for name, text in DESCRIPTIONS.items()]
    card = AgentCard(
        name="Python agent",
        description="An agent of the tests.",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=url, protocol_binding=BINDINGS[path], protocol_version=version)],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "application/json"],
        skills=skills,
    )
    handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore(), agent_card=card)
    compat = {"enable_v0_3_compat": version == "0.3"}
    rpc = create_jsonrpc_routes(handler, "/rpc", **compat) if path == "jsonrpc" else create_rest_routes(handler, **compat)
    return Mount(base, routes=create_agent_card_routes(card) + rpc)


def app(origin):
    return Starlette(routes=[agent(origin, version, path) for version in ("1.0", "0.3") for path in BINDINGS])


if __name__ == "__main__":
    serve(app)
