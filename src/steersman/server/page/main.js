// The page: it puts its parts together, follows the address, and draws once a frame what has changed.

import { ApiError, PACE, read } from "./app/api.js";
import { getText } from "./app/format.js";
import { Session } from "./app/session.js";
import { Approvals } from "./view/approvals.js";
import { Composer } from "./view/composer.js";
import { Conversation } from "./view/conversation.js";
import { setText } from "./view/dom.js";
import { Inspector } from "./view/inspector.js";
import { setUpKeys } from "./view/keys.js";
import { Notices } from "./view/notices.js";
import { Sidebar } from "./view/sidebar.js";
import { setUpTheme } from "./view/theme.js";

const LIST_EVERY = 5_000 * PACE;

class Page {
  constructor() {
    this.session = null;
    this.frame = 0;
    this.health = "ok";
    this.isWatching = false;
    this.notices = new Notices(document);
    const report = (error) => this.notices.report(error);
    this.report = report;
    this.conversation = new Conversation(document, {
      edit: (row) => this.edit(row),
      branch: (row) => this.composer.setOrigin({ at: row.id, label: getText(row.message) || "this answer" }),
      rerun: (row) => this.session.rerun(row.id).catch(report),
    });
    this.approvals = new Approvals(document, report);
    this.composer = new Composer(document, {
      say: (text, options) => this.say(text, options),
      report,
      escape: () => this.approvals.focus() || document.querySelector("#scroller").focus(),
    });
    this.sidebar = new Sidebar(document, { report, onmissing: () => this.showLogin() });
    this.inspector = new Inspector(document, { report, onshow: (leaf, id) => this.showBranch(leaf, id) });
    setUpTheme(document.querySelector("#theme"));
    this.keys = setUpKeys(this);
    document.querySelector("#back").addEventListener("click", () => this.session?.view(this.session.log.tip));
    addEventListener("hashchange", () => this.followAddress());
    addEventListener("resize", () => this.schedule()); // the panel at the side may have got room
    document.addEventListener("visibilitychange", () => document.hidden || !this.isWatching || void this.watchServer());
  }

  start() {
    this.followAddress();
    this.schedule();
  }

  // Sessions

  followAddress() {
    const id = readAddress();
    if ((this.session?.id ?? "") === id) return;
    this.open(id === "" ? null : new Session(id, () => this.schedule()));
    this.session?.open();
  }

  open(session) {
    this.session?.close();
    this.session = session;
    for (const part of [this.conversation, this.approvals, this.composer, this.inspector]) part.setSession(session);
    this.sidebar.setCurrent(session?.id ?? null);
    document.body.classList.remove("shows-sidebar");
    this.schedule();
  }

  /** Say something; the first message makes the session. */
  async say(text, options) {
    const isNew = this.session === null;
    if (isNew) this.open(new Session(null, () => this.schedule()));
    const { session } = this;
    this.conversation.list.followsEnd = true;
    try {
      await session.say(text, { ...options, create: isNew ? (onretry) => this.create(session, onretry) : null });
    } catch (error) {
      if (session.id === null && this.session === session) this.open(null);
      throw error;
    }
    void this.sidebar.refresh();
  }

  async create(session, onretry) {
    await session.create(document.querySelector("#agent").value, onretry);
    if (this.session !== session) return;
    history.pushState(null, "", `#/${encodeURIComponent(session.id)}`);
    this.sidebar.setCurrent(session.id);
  }

  edit(row) {
    const text = getText(row.message);
    if (row.parent === null) {
      location.hash = "#/";
      queueMicrotask(() => (this.followAddress(), this.composer.setOrigin(null, text)));
      return;
    }
    const parent = this.session.log.entries.get(row.parent);
    this.composer.setOrigin({ at: row.parent, label: getText(parent.message) || "the step before" }, text);
  }

  showBranch(leaf, id) {
    this.session.view(leaf);
    this.conversation.update();
    this.conversation.list.layOut();
    this.conversation.reveal(id);
    document.body.classList.remove("shows-inspector");
  }

  // The server

  /** Read the list of sessions and the health of the server now and then, while the page is looked at. */
  async watchServer() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    await this.sidebar.refresh();
    try {
      this.health = (await read("/healthz")).status;
    } catch {
      this.health = "gone";
    }
    this.updateAgents();
    this.schedule();
    this.timer = setTimeout(() => void this.watchServer(), this.health === "ok" ? LIST_EVERY : LIST_EVERY / 5);
  }

  updateAgents() {
    const select = document.querySelector("#agent");
    const { agents } = this.sidebar;
    select.parentNode.hidden = agents.length < 2;
    if (select.options.length !== agents.length)
      select.replaceChildren(...agents.map((name) => new Option(name, name)));
  }

  showLogin() {
    document.body.classList.add("needs-login");
  }

  // Drawing

  schedule() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    // The list of sessions waits until the conversation is there, which people came for.
    if (!this.isWatching && (this.session?.isSettled ?? true)) {
      this.isWatching = true;
      void this.watchServer();
    }
    if (this.session?.hasTrouble) {
      this.session.hasTrouble = false;
      void this.watchServer();
    }
    for (const part of [this.conversation, this.approvals, this.composer, this.inspector]) part.update();
    this.drawHead();
    this.drawBanner();
    const news = this.session?.isLoaded ? this.session.log.news.splice(0) : [];
    if (this.session !== null && !this.session.isLoaded) this.session.log.news.length = 0;
    if (news.length > 0) this.notices.speak(news.at(-1));
  }

  drawHead() {
    const title =
      this.session === null || this.session.id === null ? "New session" : this.session.info?.title || "Untitled";
    const status =
      this.session === null
        ? ""
        : this.session.log.questions.size > 0
          ? "waiting"
          : this.session.log.running
            ? "running"
            : "idle";
    if (this.session?.info) this.sidebar.setKnown(title, status);
    document.body.classList.toggle("is-new", this.session === null);
    setText(document.querySelector("#title"), title);
    document.querySelector("#status").dataset.status = status;
    setText(document.querySelector("#status"), { running: "running", waiting: "needs your answer" }[status] ?? "");
    document.querySelector("#elsewhere").hidden = !this.session?.isElsewhere;
    document.title = `${status === "waiting" ? "● " : status === "running" ? "… " : ""}${title} · Steersman`;
  }

  drawBanner() {
    const { session, health } = this;
    const failed = session?.connection === "failed" ? session.failure : null;
    if (failed?.status === 401) this.showLogin();
    if (failed !== null)
      this.notices.setBanner(failed.status === 404 ? "This session does not exist." : failed.detail, "error");
    else if (session?.connection === "waiting" || health === "gone")
      this.notices.setBanner("The server cannot be reached. Connecting again…");
    else if (health === "draining")
      this.notices.setBanner("The server is about to stop. Runs can be continued when it is back.");
    else this.notices.setBanner("");
  }
}

/** The id of the session in the address; empty for none. */
function readAddress() {
  try {
    return decodeURIComponent(/^#\/(.*)/.exec(location.hash)?.[1] ?? "");
  } catch {
    return ""; // not an address of this page
  }
}

const page = new Page();
addEventListener("unhandledrejection", (event) => event.reason instanceof ApiError && page.report(event.reason));
page.start();
