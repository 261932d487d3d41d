"""One small module a peer. Each imports its library at the top, and has these:

    def connect(protocol, base_url)            what all agents share; called once, inside the event loop
    def make_agent(shared, model)              an agent with jobs.SYSTEM and the tools jobs.add and jobs.note
    async def run(agent, prompt, on_text)      the whole job by the documented API; on_text(piece) for every text delta
    PROTOCOLS = (...)                          those it speaks

No limit on turns; telemetry and logging are off by the documented switch; nothing is kept between runs but what
`connect` made.
"""
