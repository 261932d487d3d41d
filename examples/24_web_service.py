"""A web service: a session for each user, events as SSE, and approval over HTTP. docs/web-service.md tries it."""

import sys
import tempfile

from aiohttp import web

from steersman import Agent, AgentBusy, Approval, Session, tool
from steersman.testing import ScriptedModel, answer, call
from steersman.types import UnknownApproval, encode

STORE = tempfile.mkdtemp() + "/users.db"
agents: dict[str, Agent] = {}


@tool
def deploy(target: str) -> str:
    """Deploy the shop."""
    return f"deployed to {target}"


def find_agent(request: web.Request) -> Agent:
    user = request.headers["X-User"]  # your service authenticates
    if user not in agents:
        model = ScriptedModel(answer(call("deploy", target="staging"), call("deploy", target="live")), "Done.").model
        session, policy = Session.open(STORE, user, create=True), Approval()
        agents[user] = Agent(model, tools=[deploy], session=session, approval=policy, approve="wait")
    return agents[user]


async def prompt(request: web.Request) -> web.StreamResponse:
    try:
        stream = find_agent(request).prompt(await request.text())
    except AgentBusy as error:
        raise web.HTTPConflict(text=str(error)) from error
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    async with stream:  # a client that leaves ends its run, and its questions are denied
        async for event in stream:
            await response.write(b"data: " + encode(event) + b"\n\n")
    return response


async def decide(request: web.Request) -> web.Response:
    agent, body = find_agent(request), await request.json()
    try:
        counts = agent.approve(body["id"]) if body["yes"] else agent.deny(body["id"], body.get("reason", ""))
        return web.json_response({"counts": counts})  # false for a second click
    except UnknownApproval as error:
        raise web.HTTPNotFound(text=str(error)) from error


if __name__ == "__main__":
    (app := web.Application()).add_routes([web.post("/prompt", prompt), web.post("/decide", decide)])
    web.run_app(app, host="127.0.0.1", port=int([*sys.argv, "8080"][1]), handler_cancellation=True)
