// The list of sessions: search, status, and more pages on demand.

import { ApiError, act, read } from "../app/api.js";
import { formatTime } from "../app/format.js";
import { h, iconButton, replace, setText } from "./dom.js";

const PAGE = 40;
const STATUS = { running: "running", waiting: "waits for an answer", idle: "" };

export class Sidebar {
  constructor(page, { report, onmissing }) {
    Object.assign(this, { report, onmissing, query: "", sessions: [], next: null, current: null, agents: [] });
    this.known = {};
    this.list = page.querySelector("#sessions");
    this.search = page.querySelector("#search");
    this.more = page.querySelector("#more-sessions");
    this.dialog = page.querySelector("#confirm");
    this.note = page.querySelector("#sessions-note");
    this.search.addEventListener("input", () => this.setQuery(this.search.value));
    this.more.addEventListener("click", () => this.loadMore());
    this.list.addEventListener("keydown", (event) => this.moveByKey(event));
  }

  setQuery(query) {
    this.query = query;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.refresh(), 150);
  }

  setCurrent(id) {
    this.current = id;
    this.known = {};
    this.show();
  }

  /** The title and the status of the current session, which the page knows before the list is read again. */
  setKnown(title, status) {
    if (title === this.known.title && status === this.known.status) return;
    this.known = { title, status };
    this.show();
  }

  /** Read the list again. */
  async refresh() {
    const query = this.query;
    try {
      const most = Math.min(Math.max(this.sessions.length, PAGE), 200);
      const found = await read(`/sessions?limit=${most}&q=${encodeURIComponent(query)}`);
      if (query !== this.query) return;
      Object.assign(this, { sessions: found.sessions, next: found.next, agents: found.agents ?? [], isRead: true });
      this.show();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) this.onmissing(error);
    }
  }

  async loadMore() {
    try {
      const found = await read(
        `/sessions?limit=${PAGE}&q=${encodeURIComponent(this.query)}&cursor=${encodeURIComponent(this.next)}`,
      );
      const known = new Set(this.sessions.map((one) => one.id));
      this.sessions.push(...found.sessions.filter((one) => !known.has(one.id)));
      this.next = found.next;
      this.show();
    } catch (error) {
      this.report(error);
    }
  }

  show() {
    const state = JSON.stringify([this.sessions, this.current, this.known, this.next]);
    this.more.hidden = this.next === null;
    setText(
      this.note,
      this.sessions.length > 0 ? "" : this.query ? "No session has this in its title." : "No sessions yet.",
    );
    this.note.hidden = this.sessions.length > 0 || !this.isRead;
    if (state === this.shown) return;
    this.shown = state;
    const focused = document.activeElement?.closest?.("#sessions li")?.dataset.id;
    replace(
      this.list,
      this.sessions.map((one) => this.makeItem(one.id === this.current ? { ...one, ...this.known } : one)),
    );
    if (focused) this.list.querySelector(`li[data-id="${CSS.escape(focused)}"] a`)?.focus();
  }

  makeItem(one) {
    const title = one.title || "Untitled";
    const status = STATUS[one.status] ? h("span", { class: "hidden" }, `, ${STATUS[one.status]}`) : null;
    const link = h(
      "a",
      { href: `#/${encodeURIComponent(one.id)}`, "aria-current": one.id === this.current ? "page" : null, title },
      h("span", { class: "dot", data: { status: one.status } }),
      h("span", { class: "session-title", dir: "auto" }, title),
      status,
      h("time", {}, formatTime(one.updated)),
    );
    return h(
      "li",
      { data: { id: one.id } },
      link,
      iconButton("trash", `Delete “${title}”`, () => this.remove(one)),
    );
  }

  remove(one) {
    setText(this.dialog.querySelector("p"), `“${one.title || "Untitled"}” is deleted for good, with all its branches.`);
    this.dialog.addEventListener("close", () => this.dialog.returnValue === "yes" && void this.removeNow(one), {
      once: true,
    });
    this.dialog.returnValue = "";
    this.dialog.showModal();
  }

  async removeNow(one) {
    try {
      await act(`/sessions/${encodeURIComponent(one.id)}`, {}, { method: "DELETE" });
      if (one.id === this.current) location.hash = "#/";
    } catch (error) {
      this.report(error);
    }
    await this.refresh();
  }

  moveByKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    const links = [...this.list.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (at < 0) return;
    event.preventDefault();
    links[at + step]?.focus();
  }
}
