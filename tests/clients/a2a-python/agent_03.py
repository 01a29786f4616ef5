"""An agent made with the last release of the official Python SDK for A2A 0.3: that of agent.py, at `/0.3/jsonrpc` and `/0.3/rest`."""

from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.apps.rest.rest_adapter import RESTAdapter
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, DataPart, Part, TextPart
from a2a.utils import get_message_text, new_agent_text_message
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from skills import DESCRIPTIONS, answered, say, serve, steps

BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        is_started = context.current_task is not None
        taken = answered(text) if is_started else steps(context.message.metadata.get("skill"), text)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        is_continued = False
        async for step, value in taken:
            if step == "message":
                await event_queue.enqueue_event(new_agent_text_message(value))
                return
            if not is_started:
                await updater.submit()
                is_started = True
            if step == "work":
                await updater.start_work(new_agent_text_message(value, context.context_id, context.task_id))
            elif step == "piece":
                part = Part(root=TextPart(text=value))
                await updater.add_artifact([part], artifact_id="words", append=is_continued)
                is_continued = True
            elif step == "data":
                await updater.add_artifact([Part(root=DataPart(data=value))], artifact_id="numbers")
            elif step == "ask":
                question = new_agent_text_message(value, context.context_id, context.task_id)
                await updater.requires_input(question, final=True)
                return
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()
        say(cancelled=get_message_text(context.current_task.status.message))


def agent(origin, path):
    base = f"/0.3/{path}"
    url = f"{origin}{base}/rpc" if path == "jsonrpc" else origin + base
    skills = [AgentSkill(id=name, name=name.title(), description=text, tags=["test"]) for name, text in DESCRIPTIONS.items()]
    card = AgentCard(
        name="Python agent of 0.3",
        description="An agent of the tests.",
        version="1.0.0",
        url=url,
        preferred_transport=BINDINGS[path],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "application/json"],
        skills=skills,
    )
    handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore())
    if path == "jsonrpc":
        return Mount(base, routes=A2AStarletteApplication(card, handler).routes(rpc_url="/rpc"))
    # The SDK's application for this binding needs FastAPI, and has the same routes.
    rest = RESTAdapter(agent_card=card, http_handler=handler)

    async def own_card(request):
        return JSONResponse(await rest.handle_get_agent_card(request))

    routes = [Route(path, endpoint, methods=[method]) for (path, method), endpoint in rest.routes().items()]
    return Mount(base, routes=[Route("/.well-known/agent-card.json", own_card), *routes])


def app(origin):
    return Starlette(routes=[agent(origin, path) for path in BINDINGS])


if __name__ == "__main__":
    serve(app)
