// Markdown as nodes, also while it is still arriving: only the blocks that changed are made again.

import { h } from "../view/dom.js";
import { parseBlocks } from "./blocks.js";
import { makeCode } from "./code.js";
import { renderInline } from "./inline.js";

const LONG_CELL = 40; // characters: a longer text is given some width, the table scrolls if it is too wide
const DEEPEST = 8;

/** The nodes of a text. */
export function renderMarkdown(source, depth = 0) {
  if (depth > DEEPEST) return [h("p", {}, source)];
  return parseBlocks(source).map((block) => renderBlock(block, depth));
}

/** A text that may grow. `node` holds it. */
export class GrowingMarkdown {
  constructor() {
    this.node = h("div", { class: "prose" });
    this.source = "";
    this.settled = 0; // everything before this place is rendered for good
    this.open = []; // the nodes after it
  }

  update(source) {
    if (source === this.source) return;
    if (!source.startsWith(this.source)) {
      this.settled = 0;
      this.open = [];
      this.node.replaceChildren();
    }
    this.source = source;
    const from = this.settled;
    const blocks = parseBlocks(source.slice(from));
    for (const node of this.open) node.remove();
    this.open = [];
    blocks.forEach((block, place) => {
      const node = renderBlock(block, 0);
      this.node.append(node);
      // The last two blocks may still change: a list goes on, a line becomes a heading or a table.
      if (place >= blocks.length - 2) this.open.push(node);
      else this.settled = from + block.end;
    });
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
