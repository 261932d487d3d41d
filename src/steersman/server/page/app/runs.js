// The times and costs of runs, for the timeline: bars of model, tools and waiting; points of tokens and cost.

export class Runs {
  constructor() {
    this.list = [];
    this.byId = new Map();
    this.usage = { input: 0, output: 0, cache_read: 0, cache_write: 0, cost: 0, hasCost: false, answers: 0 };
    this.context = 0; // tokens of the last request and its answer
    this.version = 0;
  }

  add(event) {
    const take = this[`on_${event.type}`];
    if (take === undefined) return;
    const run = this.byId.get(event.loop_id);
    if (run !== undefined || event.type === "agent_start") {
      this.version++;
      take.call(this, event, run);
    }
  }

  on_agent_start(event) {
    const run = {
      id: event.loop_id,
      start: event.timestamp,
      end: null,
      reason: null,
      bars: [],
      open: new Map(),
      points: [],
      turns: [],
      tokens: 0,
      cost: 0,
      model: event.config_snapshot?.model ?? "",
    };
    this.byId.set(run.id, run);
    this.list.push(run);
  }

  on_agent_end(event, run) {
    run.end = event.timestamp;
    run.reason = event.end_reason;
    for (const bar of run.open.values()) run.bars.push({ ...bar, to: event.timestamp });
    run.open.clear();
  }

  on_message_start(event, run) {
    if (event.message.role === "assistant")
      run.open.set("model", {
        kind: "model",
        from: event.message.timestamp || event.timestamp,
        label: event.message.model,
      });
  }

  on_message_end(event, run) {
    const { message } = event;
    if (message.role !== "assistant") return;
    run.open.delete("model");
    run.turns.push(message.timestamp);
    run.bars.push({
      kind: "model",
      from: message.timestamp,
      to: event.timestamp,
      label: message.model,
      isError: message.stop_reason === "error",
    });
    this.count(message.usage ?? {}, event.timestamp, run);
  }

  count(usage, time, run) {
    for (const name of ["input", "output", "cache_read", "cache_write"]) this.usage[name] += usage[name] ?? 0;
    this.usage.answers += 1;
    if (usage.cost !== null && usage.cost !== undefined) {
      this.usage.cost += usage.cost;
      this.usage.hasCost = true;
    }
    if (usage.total) this.context = usage.total;
    run.tokens += usage.total ?? 0;
    run.cost += usage.cost ?? 0;
    run.points.push({ time, tokens: run.tokens, cost: run.cost });
  }

  on_tool_execution_start(event, run) {
    run.open.set(event.tool_call_id, { kind: "tool", from: event.timestamp, label: event.tool_name });
  }

  on_tool_execution_end(event, run) {
    run.open.delete(event.tool_call_id);
    run.bars.push({
      kind: "tool",
      from: event.timestamp - event.duration,
      to: event.timestamp,
      label: event.tool_name,
      isError: event.is_error,
    });
  }

  on_approval_requested(event, run) {
    run.open.set(event.approval_id, { kind: "wait", from: event.timestamp, label: event.tool_name });
  }

  on_approval_resolved(event, run) {
    const bar = run.open.get(event.approval_id);
    run.open.delete(event.approval_id);
    if (bar !== undefined) run.bars.push({ ...bar, to: event.timestamp });
  }
}
