// One session on the page: its log, the connection that fills it, and what people do with it.

import { ApiError, act, makeKey, read } from "./api.js";
import { Feed } from "./feed.js";
import { getText } from "./format.js";
import { Log } from "./log.js";

const AFTER_PAINT = 100; // milliseconds until the rest is loaded, so that the end is painted before
const FIRST = 300; // records of the end that are shown first; the others follow

/** `onchange` is called after anything has changed. Without an id it is a new one, which the first message makes. */
export class Session {
  constructor(id, onchange) {
    this.id = id;
    this.onchange = onchange;
    this.log = new Log();
    this.info = null;
    this.connection = "connecting"; // connecting, live, waiting, failed
    this.failure = null;
    this.isLoaded = id === null;
    this.viewed = null; // the tip of a branch that is looked at, if it is not the current one
    this.sending = new Map(); // messages that are on their way, by key
    this.feed = null;
    this.earlier = null; // reads what was before the first events that are shown
    this.tail = null;
  }

  /** Load the session and follow it. */
  open() {
    this.end = null; // the record where the log ended when it was opened
    this.tail = []; // the events since, until those before them are here
    this.feed = new Feed(this.id, {
      last: FIRST,
      onevents: (events) => this.take(events),
      onstate: (state, more) => this.setConnection(state, more),
    });
    void this.feed.run();
  }

  /** Read what is before the first events that were shown, and put both together. */
  loadEarlier(until) {
    const log = new Log();
    this.earlier = new Feed(this.id, {
      until,
      onevents: (events) => events.forEach(([position, event]) => log.add(position, event)),
      onstate: (state) => state === "done" && this.joinEarlier(log),
    });
    setTimeout(() => void this.earlier?.run(), AFTER_PAINT);
  }

  joinEarlier(log) {
    for (const [position, event] of this.tail) log.add(position, event);
    log.news.length = 0;
    this.log = log;
    this.earlier = this.tail = null;
    this.checkRun();
    this.onchange();
  }

  close() {
    this.isClosed = true;
    this.feed?.stop();
    this.earlier?.stop();
  }

  /** Make the session on the server, and follow it. */
  async create(agent, onretry) {
    const made = await act("/sessions", agent ? { agent } : {}, { onretry });
    this.id = made.id;
    if (!this.isClosed) this.open();
  }

  get path() {
    return `/sessions/${encodeURIComponent(this.id)}`;
  }

  /** Whether it is loaded, or cannot be for now. */
  get isSettled() {
    return this.isLoaded || this.connection === "waiting" || this.connection === "failed";
  }

  get tip() {
    return this.viewed ?? this.log.tip;
  }

  get isElsewhere() {
    return this.viewed !== null && this.viewed !== this.log.tip;
  }

  /** Whether the conversation ended before its answer, so that it can be continued. */
  get canContinue() {
    const entry = this.log.entries.get(this.tip);
    if (this.log.running || this.isElsewhere || entry === undefined || !this.isLoaded) return false;
    if (this.log.wasCut || entry.role === "user" || entry.role === "tool_result") return true;
    return (
      ["error", "aborted", "length"].includes(entry.message.stop_reason) ||
      [...entry.calls.values()].some((call) => call.result === null)
    );
  }

  take(events) {
    const { isLoaded } = this;
    for (const [position, event] of events) this.log.add(position, event);
    this.tail?.push(...events);
    for (const [key, sent] of this.sending)
      if (sent.isDone || this.log.heardKeys.has(key) || this.isInBranch(sent)) this.sending.delete(key);
    this.checkLoaded();
    if (
      isLoaded &&
      events.some(
        ([, event]) =>
          event.type === "agent_start" || event.type === "agent_end" || event.type === "approval_requested",
      )
    )
      void this.refresh();
    this.onchange();
  }

  /** Whether the message of a new branch is in the log: it may be there before its receipt. */
  isInBranch({ at, before, message }) {
    const added = at === null ? [] : (this.log.children.get(at) ?? []).filter((id) => !before.has(id));
    return added.some((id) => getText(this.log.entries.get(id).message) === message.content[0].text);
  }

  async setConnection(state, more) {
    if (state === "failed" && this.isLoaded && (more.status === 400 || more.status === 422)) return this.startOver();
    this.connection = state;
    this.failure = state === "failed" ? more : null;
    if (state === "live") this.end ??= more;
    this.checkLoaded();
    this.onchange();
    if (state === "live" && this.isLoaded) await this.refresh();
  }

  /** The log on the server is another one than ours: read it from its beginning. */
  startOver() {
    this.feed.stop();
    this.earlier?.stop();
    this.log = new Log();
    this.isLoaded = false;
    this.viewed = null;
    this.open();
  }

  /** Read what the events do not say: the title, the model, the size of its context, whether a run goes on. */
  async refresh() {
    try {
      this.info = await read(this.path);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      return;
    }
    this.checkRun();
    this.onchange();
  }

  /** Whether all events up to those that come live are here. */
  checkLoaded() {
    if (this.tail === null || this.end === null || this.log.record < this.end) return;
    if (!this.isLoaded) void this.refresh();
    this.isLoaded = true;
    if (this.earlier !== null) return;
    const first = this.tail.length === 0 ? 1 : Number.parseInt(this.tail[0][0], 10);
    if (first > 1) this.loadEarlier(first - 1);
    else this.tail = null;
  }

  /** A run in the log without an end that the server does not know was cut by a restart; the tail may not show a run. */
  checkRun() {
    const { info, log } = this;
    if (info === null || log.record !== info.records) return;
    if (info.status === "idle" || (info.status === "waiting" && info.position === undefined)) log.cutRun();
    else if (this.earlier !== null) log.running = true;
  }

  // Speaking

  /** Say something: start a run, steer the one that goes on, or queue it ("follow_up"). */
  async say(text, { kind = "steer", at = null, create = null } = {}) {
    const key = makeKey();
    const sent = {
      key: `sending-${key}`,
      role: "queued",
      kind,
      isSending: true,
      at,
      before: new Set(this.log.children.get(at)),
      message: { content: [{ type: "text", text }] },
      version: 1,
      notes: [],
    };
    this.sending.set(key, sent);
    this.viewed = null;
    const action = at !== null ? "branch" : this.log.running ? kind : "prompt";
    const body = at !== null ? { at, content: text } : { content: text };
    this.onchange();
    try {
      await create?.(() => this.noteRetry(sent));
      await this.send(action, body, key, sent);
      sent.isDone = true; // its event is on its way
      if (at !== null) this.sending.delete(key);
    } catch (error) {
      this.sending.delete(key);
      throw error;
    } finally {
      this.onchange();
    }
  }

  async send(action, body, key, sent) {
    const onretry = () => this.noteRetry(sent);
    try {
      return await act(`${this.path}/${action}`, body, { key, onretry });
    } catch (error) {
      // Another tab has started a run meanwhile: the message steers it.
      if (action === "prompt" && error.status === 409) return act(`${this.path}/steer`, body, { key, onretry });
      throw error;
    }
  }

  /** A message could not be sent yet. */
  noteRetry(sent) {
    Object.assign(sent, { isRetrying: true, version: sent.version + 1 });
    this.hasTrouble = true; // the page asks the server how it is
    this.onchange();
  }

  async stop() {
    await act(`${this.path}/abort`);
  }

  async resume() {
    await act(`${this.path}/continue`);
  }

  async rerun(at) {
    this.viewed = null;
    await act(`${this.path}/rerun`, { at });
  }

  async approve(id, { remember = false } = {}) {
    await act(`${this.path}/approve`, remember ? { id, remember } : { id });
  }

  async deny(id, reason) {
    await act(`${this.path}/deny`, { id, reason });
  }

  async configure(changes) {
    await act(`${this.path}/configure`, changes);
    await this.refresh();
  }

  /** Look at another branch; the conversation itself stays where it is until something is said. */
  view(leaf) {
    this.viewed = leaf === this.log.tip ? null : leaf;
    this.onchange();
  }
}
