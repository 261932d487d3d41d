// What the events of a session say: the entries of the conversation, the answer that is arriving, questions, queue, runs.

import { Runs } from "./runs.js";

const TREE_TYPES = new Set(["compaction", "undo"]);
const MOST_OUTPUT = 200_000;

export class Log {
  constructor() {
    this.entries = new Map(); // id -> entry
    this.children = new Map(); // id or null -> ids
    this.tip = null;
    this.live = null; // the answer that is arriving
    this.calls = new Map(); // tool call id -> call; the latest answer with this id counts
    this.questions = new Map();
    this.queue = new Map();
    this.runs = new Runs();
    this.running = false;
    this.wasCut = false; // the server ended in the middle of a run
    this.heardKeys = new Set(); // keys of messages that are in the log
    this.config = null;
    this.saves = 0; // of artifacts
    this.moves = 0; // to another branch
    this.record = 0;
    this.news = []; // what a screen reader should say
    this.counter = 0;
  }

  /** Take an event with its position. */
  add(position, event) {
    this.record = Number.parseInt(position, 10);
    this.position = position;
    if (event.type === "message_end") event.message = readMessage(event.message);
    const take = this[`on_${event.type}`];
    if (take !== undefined) take.call(this, event);
    else if (TREE_TYPES.has(event.type))
      this.addEntry({ id: event.id, parent: event.parent, role: event.type, message: event }, event);
    this.runs.add(event);
  }

  /** The entries from the beginning to one of them. */
  findPath(tip) {
    const path = [];
    for (let entry = this.entries.get(tip); entry !== undefined; entry = this.entries.get(entry.parent))
      path.push(entry);
    return path.reverse();
  }

  /** The last entry of the branch that goes on from an entry, the newest where there are several. */
  findLeaf(id) {
    for (let next = this.children.get(id); next !== undefined; next = this.children.get(id)) id = next.at(-1);
    return id;
  }

  /** Another server has started: no run goes on, and what had arrived of an answer will not be completed. */
  cutRun() {
    if (!this.running && this.live === null) return;
    this.running = false;
    this.wasCut = true;
    if (this.live !== null) this.touch(Object.assign(this.live, { isCut: true }));
  }

  touch(entry) {
    entry.version = ++this.counter;
  }

  addEntry(entry, event) {
    const made = {
      key: entry.id,
      calls: new Map(),
      notes: [],
      time: event.timestamp,
      loop: event.loop_id,
      seq: event.seq,
      ...entry,
    };
    this.touch(made);
    if (!this.entries.has(made.id)) {
      const siblings = this.children.get(made.parent) ?? [];
      siblings.push(made.id);
      this.children.set(made.parent, siblings);
      for (const id of siblings.length > 1 ? siblings : []) if (id !== made.id) this.touch(this.entries.get(id));
    }
    this.entries.set(made.id, made);
    this.tip = made.id;
    return made;
  }

  addNote(kind, text) {
    const entry = this.live ?? this.entries.get(this.tip);
    if (entry === undefined) return;
    entry.notes.push({ kind, text });
    this.touch(entry);
  }

  // Runs

  on_agent_start(event) {
    this.running = true;
    this.wasCut = false;
    this.live = null;
    this.questions.clear();
    this.config = event.config_snapshot ?? this.config;
  }

  on_agent_end(event) {
    this.running = false;
    this.live = null;
    this.questions.clear();
    const entry = this.entries.get(this.tip);
    if (entry !== undefined) this.touch(entry);
    if (event.end_reason === "aborted") this.addNote("stopped", "Stopped.");
    else if (event.end_reason !== "done" && event.end_reason !== "terminated")
      this.addNote("error", describeEnd(event));
    this.news.push(event.end_reason === "done" ? "The answer is complete." : describeEnd(event));
  }

  // Messages

  on_message_start(event) {
    if (event.message.role !== "assistant") return;
    this.live = {
      id: null,
      key: `answer-${this.position}`,
      role: "assistant",
      message: { ...event.message, content: [] },
      calls: new Map(),
      notes: [],
      isLive: true,
    };
    this.touch(this.live);
  }

  on_snapshot(event) {
    this.on_message_start(event);
    if (this.live === null) return;
    this.live.message = event.message;
    for (const block of event.message.content) if (block.type === "tool_call") this.addCall(this.live, block);
  }

  on_message_update({ delta }) {
    if (this.live === null) this.on_message_start({ message: { role: "assistant" } });
    applyDelta(this.live.message.content, delta);
    const block = this.live.message.content[delta.content_index];
    if (block?.type === "tool_call" && (delta.type === "tool_call_start" || delta.type === "tool_call_end"))
      this.addCall(this.live, block);
    this.touch(this.live);
  }

  on_message_end(event) {
    const { message } = event;
    if (event.queue_id !== undefined) this.queue.delete(event.queue_id);
    const entry = { id: event.entry_id, parent: event.parent, role: message.role, message };
    if (message.role === "assistant") {
      const live = this.live?.isCut ? null : this.live;
      if (live !== null) Object.assign(entry, { key: live.key, notes: live.notes });
      this.live = null;
      const made = this.addEntry(entry, event);
      for (const block of message.content)
        if (block.type === "tool_call") this.addCall(made, block, live?.calls.get(block.id));
    } else if (message.role === "tool_result") {
      this.addResult(this.addEntry(entry, event), message);
    } else {
      this.addEntry(entry, event);
    }
  }

  on_prun_applied(event) {
    if (event.entry_id)
      this.addEntry({ id: event.entry_id, parent: event.parent, role: "prun", message: event }, event);
  }

  // Tools

  addCall(entry, block, known) {
    const call = known ??
      entry.calls.get(block.id) ?? { id: block.id, status: "pending", output: "", result: null, duration: null };
    Object.assign(call, { name: block.name, entry });
    entry.calls.set(block.id, call);
    this.calls.set(block.id, call);
  }

  change(callId, fields) {
    const call = this.calls.get(callId);
    if (call === undefined) return;
    Object.assign(call, fields);
    this.touch(call.entry);
  }

  on_tool_execution_start(event) {
    this.change(event.tool_call_id, { status: "running", args: event.args, output: "", started: event.timestamp });
  }

  on_tool_execution_update(event) {
    const call = this.calls.get(event.tool_call_id);
    if (call !== undefined)
      this.change(call.id, { output: (call.output + describeUpdate(event.update)).slice(-MOST_OUTPUT) });
  }

  on_tool_execution_end(event) {
    this.change(event.tool_call_id, {
      result: event.result,
      status: findStatus(event.result),
      duration: event.duration,
    });
  }

  addResult(entry, message) {
    const call = this.calls.get(message.tool_call_id);
    entry.isFolded = call !== undefined; // it is shown with its call
    if (call !== undefined) this.change(call.id, { result: message, status: findStatus(message) });
  }

  // Questions

  on_approval_requested(event) {
    this.questions.set(event.approval_id, event);
    this.change(event.parent_tool_call_id ?? event.tool_call_id, { status: "waiting" });
    this.news.push(`Approval needed for ${event.tool_name}.`);
  }

  on_approval_resolved(event) {
    const question = this.questions.get(event.approval_id);
    this.questions.delete(event.approval_id);
    if (question !== undefined) {
      const status = event.decision === "approved" ? "running" : "denied";
      this.change(question.parent_tool_call_id ?? question.tool_call_id, { status, decision: event });
    }
  }

  // The queue

  /** What came before belongs to another place: nothing of it waits here. */
  on_imported() {
    this.queue.clear();
    this.questions.clear();
    this.heardKeys.clear();
    this.running = false;
  }

  on_accepted(event) {
    this.heardKeys.add(event.key);
    this.queue.set(event.id, {
      id: event.id,
      key: `queue-${event.id}`,
      kind: event.kind,
      message: event.message,
      role: "queued",
      version: ++this.counter,
      notes: [],
    });
  }

  on_delivered(event) {
    this.queue.delete(event.queue_id);
  }

  on_returned(event) {
    this.queue.delete(event.queue_id);
  }

  on_leaf(event) {
    this.tip = event.target;
    this.moves++;
  }

  on_artifact() {
    this.saves++;
  }

  // What happens beside the conversation

  on_retry_scheduled(event) {
    this.addNote(
      "retry",
      `Attempt ${event.attempt} failed: ${endSentence(event.error.message)} Trying again in ${event.delay.toFixed(1)} s.`,
    );
  }

  on_model_fallback(event) {
    this.addNote("retry", `${event.from_model} failed: ${endSentence(event.error.message)} Asking ${event.to_model} instead.`);
  }

  on_loop_detected(event) {
    this.addNote("retry", `The same calls of ${event.tool_names.join(", ")} came ${event.repetitions} times.`);
  }

  on_input_rejected(event) {
    this.addNote("error", `The message was rejected: ${event.reason}`);
  }

  on_compaction_ended(event) {
    if (event.reduced)
      this.addNote(
        "compaction",
        `The context was compacted from ${event.tokens_before.toLocaleString("en")} to ${event.tokens_after.toLocaleString("en")} tokens.`,
      );
  }
}

function applyDelta(content, delta) {
  const at = delta.content_index ?? 0;
  switch (delta.type) {
    case "reset":
      content.length = 0;
      break;
    case "text_start":
      content[at] = { type: "text", text: "" };
      break;
    case "text_delta":
      (content[at] ??= { type: "text", text: "" }).text += delta.delta;
      break;
    case "thinking_start":
      content[at] = { type: "thinking", thinking: "" };
      break;
    case "thinking_delta":
      (content[at] ??= { type: "thinking", thinking: "" }).thinking += delta.delta;
      break;
    case "tool_call_start":
      content[at] = {
        type: "tool_call",
        id: delta.id,
        name: delta.name,
        arguments: {},
        raw_arguments: "",
        complete: false,
      };
      break;
    case "tool_call_delta":
      if (content[at] !== undefined) content[at].raw_arguments = (content[at].raw_arguments ?? "") + delta.delta;
      break;
    case "tool_call_end":
      if (delta.tool_call) content[at] = delta.tool_call;
      break;
  }
}

/** A message of a record, which may be damaged or of an imported file. */
function readMessage(message) {
  const content = Array.isArray(message?.content) ? message.content.filter(isBlock) : [];
  return { ...message, role: String(message?.role), content };
}

function isBlock(block) {
  return typeof (block?.text ?? block?.thinking ?? block?.name ?? block?.mime_type) === "string";
}

function findStatus(message) {
  const status = message.details?.status;
  if (status === "denied" || status === "skipped" || status === "cancelled") return status;
  return message.is_error ? "error" : "done";
}

function describeEnd(event) {
  const detail = event.detail ? `: ${event.detail}` : ".";
  return (
    { limit: `A limit ended the run${detail}`, error: event.detail || "The run failed.", aborted: "Stopped." }[
      event.end_reason
    ] ?? `The run ended (${event.end_reason})${detail}`
  );
}

function endSentence(text) {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

/** The text of a tool's progress, or of what a sub-agent does. */
function describeUpdate(update) {
  if (typeof update === "string") return update;
  const event = update?.event ?? update;
  if (typeof event?.text === "string") return event.type === "progress" ? `${event.text}\n` : event.text;
  if (event?.type === "message_update") return event.delta?.type === "text_delta" ? event.delta.delta : "";
  if (event?.type === "tool_execution_start") return `\n→ ${event.tool_name} ${JSON.stringify(event.args)}\n`;
  if (event?.type === "message_end" && event.message?.role === "assistant") return "\n";
  return event?.type === undefined ? `${JSON.stringify(update)}\n` : "";
}
