// The conversation: which rows there are, in which order, and what their buttons do.

import { estimateHeight, makeMessageView } from "./message_view.js";
import { VirtualList } from "./virtual_list.js";

const EARLIER = { key: "earlier", role: "earlier", version: 1, notes: [], message: { content: [] } };

export class Conversation {
  /** `deeds` are edit, branch and rerun, which other parts of the page do. */
  constructor(page, deeds) {
    this.session = null;
    this.opened = new Map();
    this.path = [];
    this.toEnd = page.querySelector("#to-end");
    this.empty = page.querySelector("#empty");
    this.loading = page.querySelector("#loading");
    this.scroller = page.querySelector("#scroller");
    this.feed = page.querySelector("#feed");
    const actions = {
      ...deeds,
      findSiblings: (row) => this.findSiblings(row),
      show: (id) => this.session.view(this.session.log.findLeaf(id)),
    };
    this.list = new VirtualList(this.scroller, this.feed, {
      make: (row) => makeMessageView(row, actions, this.opened),
      estimate: estimateHeight,
      onscroll: () => this.updateToEnd(),
    });
    this.toEnd.addEventListener("click", () => this.list.scrollToEnd());
    this.scroller.addEventListener("keydown", (event) => this.moveByKey(event));
  }

  /** Show another session, or none. */
  setSession(session) {
    this.session = session;
    this.path = [];
    this.opened.clear();
    this.list.clear();
  }

  update() {
    const { session } = this;
    const rows = session === null ? [] : this.findRows(session);
    const isEmpty = session === null || (session.isLoaded && rows.length === 0);
    this.empty.hidden = !isEmpty;
    this.loading.hidden = session === null || session.isLoaded || session.connection === "failed";
    this.feed.hidden = isEmpty || !session.isLoaded;
    this.feed.setAttribute("aria-busy", String(Boolean(session?.log.running)));
    if (session !== null && !session.isLoaded) return;
    if (!isEmpty) this.list.setRows(rows);
    this.updateToEnd();
  }

  findRows(session) {
    const { log } = session;
    this.updatePath(log, session.tip);
    const rows = this.path.filter((entry) => !entry.isFolded);
    if (session.earlier !== null) rows.unshift(EARLIER);
    if (!session.isElsewhere) {
      if (log.live !== null) rows.push(log.live);
      rows.push(...log.queue.values(), ...session.sending.values());
    }
    return rows;
  }

  /** The path to the tip; usually it only grows at its end. */
  updatePath(log, tip) {
    const added = [];
    const last = this.path.at(-1);
    let entry = log.entries.get(tip);
    while (entry !== undefined && entry !== last && added.length < 50) {
      added.push(entry);
      entry = log.entries.get(entry.parent);
    }
    if (last !== undefined && entry === last && log.entries.get(last.id) === last) this.path.push(...added.reverse());
    else this.path = log.findPath(tip);
  }

  findSiblings(row) {
    const ids = this.session.log.children.get(row.parent) ?? [];
    return ids.filter((id) => !this.session.log.entries.get(id).isFolded);
  }

  updateToEnd() {
    this.toEnd.hidden = this.list.followsEnd || this.feed.hidden;
  }

  /** Bring an entry into view. */
  reveal(id) {
    const entry = this.session?.log.entries.get(id);
    if (entry !== undefined) this.list.scrollTo(entry.key);
  }

  moveByKey(event) {
    if (event.target !== this.scroller) return;
    if (event.key === "End") this.list.scrollToEnd();
    else if (event.key === "Home") this.list.scrollTo(this.list.rows[0]?.key);
    else return;
    event.preventDefault();
  }
}
