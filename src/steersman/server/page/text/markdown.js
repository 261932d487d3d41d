// Markdown as nodes, also while it is still arriving: only the blocks that changed are made again.

import { h } from "../view/dom.js";
import { parseBlocks } from "./blocks.js";
import { makeCode } from "./code.js";
import { renderInline } from "./inline.js";

const LONG_CELL = 40; // characters: a longer text is given some width, the table scrolls if it is too wide
const DEEPEST = 8;
const PART = 20_000; // characters of a text that is shown as it is

/** The most characters of one answer that are shown as Markdown; the rest is shown as it is, when it is asked for. */
export const LONGEST = 60_000;

/** The nodes of a text. */
export function renderMarkdown(source, depth = 0) {
  if (depth > DEEPEST) return [h("p", {}, source)];
  return parseBlocks(source).map((block) => renderBlock(block, depth));
}

/** A text that may grow. `node` holds it. */
export class GrowingMarkdown {
  constructor() {
    this.node = h("div", { class: "prose" });
    this.rest = null;
    this.source = "";
    this.settled = 0; // everything before this place is rendered for good
    this.open = []; // the nodes after it
  }

  /** Show a text, of which so many characters as Markdown. */
  update(source, most = LONGEST) {
    const shown = cut(source, most);
    this.updateBlocks(shown);
    if (shown.length < source.length && this.rest === null) {
      this.rest = new PlainText();
      this.node.append(this.rest.node);
    }
    this.rest?.update(source.slice(shown.length));
  }

  updateBlocks(source) {
    if (source === this.source) return;
    if (!source.startsWith(this.source)) {
      this.settled = 0;
      this.open = [];
      this.node.replaceChildren();
      this.rest = null;
    }
    this.source = source;
    const from = this.settled;
    const blocks = parseBlocks(source.slice(from));
    for (const node of this.open) node.remove();
    this.open = [];
    blocks.forEach((block, place) => {
      const node = renderBlock(block, 0);
      this.node.insertBefore(node, this.rest?.node ?? null);
      // The last two blocks may still change: a list goes on, a line becomes a heading or a table.
      if (place >= blocks.length - 2) this.open.push(node);
      else this.settled = from + block.end;
    });
  }
}

/** The beginning of a text, up to the end of a line if it is a part; the same one when the text grows. */
function cut(source, most) {
  if (source.length <= most) return source;
  return source.slice(0, source.lastIndexOf("\n", most - 1) + 1 || most);
}

/** The rest of a long text, of which each click shows more. */
class PlainText {
  constructor() {
    this.text = "";
    this.shown = 0;
    this.body = h("p", { class: "plain" });
    this.more = h("button", { type: "button", class: "more", onclick: () => this.showMore() });
    this.node = h("div", { hidden: true }, this.body, this.more);
  }

  update(text) {
    if (text === this.text) return;
    if (!text.startsWith(this.text)) {
      this.shown = 0;
      this.body.replaceChildren();
    }
    this.text = text;
    const left = text.length - this.shown;
    this.node.hidden = text === "";
    this.more.hidden = left === 0;
    this.more.textContent = `Show more (${left.toLocaleString("en")} characters)`;
  }

  showMore() {
    const { text, shown } = this;
    this.body.append(h.text(text.slice(shown, shown + PART)));
    this.shown = Math.min(shown + PART, text.length);
    this.text = text.slice(0, this.shown);
    this.update(text);
  }
}

function renderBlock(block, depth) {
  switch (block.kind) {
    case "heading":
      return h(
        `h${Math.min(block.level + 2, 6)}`,
        { class: `heading-${block.level}`, dir: "auto" },
        renderInline(block.text),
      );
    case "rule":
      return h("hr");
    case "code":
      return makeCode(block.text, block.language);
    case "quote":
      return h("blockquote", { dir: "auto" }, renderMarkdown(block.text, depth + 1));
    case "list":
      return renderList(block, depth);
    case "table":
      return renderTable(block);
    default:
      return h("p", { dir: "auto" }, renderInline(block.text.trimEnd()));
  }
}

function renderList(block, depth) {
  const start = block.isOrdered && block.first !== 1 ? block.first : null;
  const items = block.items.map((item) => renderItem(item, block.tight, depth));
  return h(block.isOrdered ? "ol" : "ul", { start, dir: "auto" }, items);
}

function renderItem(item, tight, depth) {
  const task = /^\[([ xX])\]\s+/.exec(item);
  const text = task === null ? item : item.slice(task[0].length);
  const nodes = renderMarkdown(text, depth + 1).flatMap((node) =>
    tight && node.tagName === "P" ? [...node.childNodes] : [node],
  );
  const done = task !== null && task[1] !== " ";
  const box =
    task === null
      ? null
      : h("span", { class: "task-box", role: "img", "aria-label": done ? "done" : "to do" }, done ? "☑" : "☐");
  return h("li", { class: task === null ? null : "task" }, box, nodes);
}

function renderTable({ aligns, rows: [head, ...body] }) {
  const makeCells = (tag, row) =>
    head.map((_, place) =>
      h(
        tag,
        { class: `align-${aligns[place] ?? "left"}${row[place]?.length > LONG_CELL ? " is-long" : ""}`, dir: "auto" },
        renderInline(row[place] ?? ""),
      ),
    );
  const table = h(
    "table",
    {},
    h("thead", {}, h("tr", {}, makeCells("th", head))),
    h(
      "tbody",
      {},
      body.map((row) => h("tr", {}, makeCells("td", row))),
    ),
  );
  return h("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": "Table" }, table);
}
