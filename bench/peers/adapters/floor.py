"""The hand-written loop on aiohttp and msgspec, against which ratios are taken."""

from bench.peers.floor import WIRES, FloorAgent, make_aiohttp_post

PROTOCOLS = ("chat", "messages", "responses", "gemini")


def connect(protocol, base_url):
    return make_aiohttp_post(base_url), WIRES[protocol]


def make_agent(shared, model):
    post, wire = shared
    return FloorAgent(post, wire(model))


async def run(agent, prompt, on_text):
    last = None
    async for said in agent.stream(prompt):
        if type(said) is str:
            on_text(said)
        else:
            last = said
    return "".join(last.text)
