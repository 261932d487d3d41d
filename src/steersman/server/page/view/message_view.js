// One row of the conversation: a message with its blocks, tool calls and notes.

import { formatCost, formatTime, formatTokens, getText, shorten } from "../app/format.js";
import { makeCopyButton } from "../text/code.js";
import { GrowingMarkdown, LONGEST } from "../text/markdown.js";
import { h, icon, iconButton, replace, setText } from "./dom.js";
import { makePicture } from "./picture.js";
import { ToolView } from "./tool_view.js";

/** `actions` are what the buttons of a message do; `opened` remembers what was unfolded. */
export function makeMessageView(row, actions, opened) {
  if (row.role === "user") return new UserView(row, actions);
  if (row.role === "queued") return new QueuedView(row);
  if (row.role === "assistant") return new AnswerView(row, actions, opened);
  return new MarkView(row);
}

/** About how high a row will be. */
export function estimateHeight(row) {
  let height = 56;
  for (const block of Array.isArray(row.message?.content) ? row.message.content : []) {
    if (block.type === "tool_call") height += 48;
    else if (block.type === "thinking") height += 36;
    else
      height +=
        26 * Math.min(Math.ceil((block.text ?? "").length / 80) + (block.text ?? "").split("\n", 200).length / 2, 200);
  }
  return height;
}

class UserView {
  constructor(row, actions) {
    this.body = h("div", { class: "bubble", dir: "auto" });
    this.foot = h("footer", { class: "message-foot" });
    this.notes = h("div", { class: "notes" });
    this.node = h("article", { class: "row row-user", "aria-label": "You" }, this.body, this.foot, this.notes);
    this.actions = actions;
    this.update(row);
  }

  update(row) {
    replace(this.body, makeUserBlocks(row.message));
    const copy = makeCopyButton(() => getText(row.message), "Copy this message");
    const edit = iconButton("edit", row.parent === null ? "Ask again in a new session" : "Change and branch here", () =>
      this.actions.edit(row),
    );
    replace(this.foot, makeSwitch(row, this.actions), h("time", {}, formatTime(row.time)), copy, edit);
    updateNotes(this.notes, row);
  }
}

function makeUserBlocks(message) {
  const content = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
  return content.map((block) => (block.type === "text" ? h("p", { class: "plain" }, block.text) : makePicture(block)));
}

class QueuedView {
  constructor(row) {
    this.label = h("span", {});
    this.node = h(
      "article",
      { class: "row row-user row-queued", "aria-label": "Your queued message" },
      h("div", { class: "bubble", dir: "auto" }, makeUserBlocks(row.message)),
      h("footer", { class: "message-foot always" }, icon("clock"), this.label),
    );
    this.update(row);
  }

  update(row) {
    const words = row.isRetrying
      ? "Waiting for the server…"
      : row.isSending
        ? "Sending…"
        : row.kind === "follow_up"
          ? "Queued for the end of the run"
          : "Will be heard next";
    setText(this.label, words);
  }
}

/** A change of the context: compaction, prun, undo. */
class MarkView {
  constructor(row) {
    this.node = h("article", { class: "row row-mark", "aria-label": "Change of the context" });
    this.update(row);
  }

  update(row) {
    const words = {
      earlier: "Earlier messages are being loaded…",
      compaction: "Earlier messages were compacted",
      prun: "The model dropped some of its own work",
      undo: "A change of the context was undone",
    };
    const text = words[row.role] ?? shorten(getText(row.message), 200) ?? row.role;
    replace(this.node, h("span", { class: "mark" }, text || row.role));
  }
}

class AnswerView {
  constructor(row, actions, opened) {
    this.actions = actions;
    this.opened = opened;
    this.blocks = []; // { kind, view }
    this.body = h("div", { class: "answer" });
    this.notes = h("div", { class: "notes" });
    this.foot = h("footer", { class: "message-foot" });
    this.node = h("article", { class: "row row-answer", "aria-label": "Answer" }, this.body, this.notes, this.foot);
    this.update(row);
  }

  update(row) {
    this.node.classList.toggle("is-live", Boolean(row.isLive && !row.isCut));
    this.node.classList.toggle("is-cut", Boolean(row.isCut));
    this.node.classList.toggle("is-step", row.calls.size > 0);
    const content = row.message.content.filter(Boolean);
    let room = LONGEST; // for Markdown: an answer may have any number of blocks
    content.forEach((block, place) => {
      this.updateBlock(place, block, row, place === content.length - 1, room);
      room = Math.max(room - getLength(block), 0);
    });
    for (const { view } of this.blocks.splice(content.length)) view.node.remove();
    this.updateWaiting(row, content);
    updateNotes(this.notes, row);
    this.updateFoot(row);
  }

  updateBlock(place, block, row, isLast, room) {
    let known = this.blocks[place];
    const kind = block.type === "tool_call" ? `call ${block.id}` : block.type;
    if (known?.kind !== kind) {
      known = { kind, view: this.makeBlock(block, row, place) };
      const before = this.blocks[place]?.view.node ?? null;
      if (before === null) this.body.append(known.view.node);
      else before.replaceWith(known.view.node);
      this.blocks[place] = known;
    }
    known.view.update(block, row, Boolean(row.isLive && isLast), room);
  }

  makeBlock(block, row, place) {
    if (block.type === "text") return new TextBlock();
    if (block.type === "thinking") return new ThinkingBlock(this.opened, `${row.key} thinking ${place}`);
    if (block.type === "tool_call") return new ToolView(this.opened, `${row.key} ${block.id}`);
    return { node: makePicture(block), update: () => {} };
  }

  updateWaiting(row, content) {
    const waits = row.isLive && !row.isCut && content.length === 0;
    if (waits && !this.waiting)
      this.body.append(
        (this.waiting = h(
          "div",
          { class: "waiting", role: "img", "aria-label": "The model is about to answer" },
          h("i"),
          h("i"),
          h("i"),
        )),
      );
    if (!waits && this.waiting) {
      this.waiting.remove();
      this.waiting = null;
    }
  }

  updateFoot(row) {
    if (row.isCut)
      return replace(this.foot, h("span", { class: "cut" }, "The server stopped in the middle of this answer."));
    if (row.isLive) return replace(this.foot);
    const { usage, model } = row.message;
    const facts = [
      model,
      usage?.output && `${formatTokens(usage.output)} tokens`,
      usage?.cost && formatCost(usage.cost),
    ]
      .filter(Boolean)
      .join(" · ");
    replace(
      this.foot,
      makeSwitch(row, this.actions),
      h("time", {}, formatTime(row.time)),
      h("span", { class: "facts" }, facts),
      makeCopyButton(() => getText(row.message), "Copy this answer"),
      iconButton("branch", "Branch from here", () => this.actions.branch(row)),
      iconButton("redo", "Answer again", () => this.actions.rerun(row)),
    );
  }
}

class TextBlock {
  constructor() {
    this.text = new GrowingMarkdown();
    this.node = this.text.node;
  }

  update(block, row, isGrowing, room) {
    this.text.update(block.text, room);
    this.node.classList.toggle("is-growing", isGrowing && !row.isCut);
  }
}

class ThinkingBlock {
  constructor(opened, key) {
    this.text = new GrowingMarkdown();
    this.label = h("span", {});
    this.node = h(
      "details",
      { class: "thinking", ontoggle: () => opened.set(key, this.node.open), open: opened.get(key) ?? false },
      h("summary", {}, icon("chevron"), this.label, (this.peek = h("span", { class: "peek" }))),
      this.text.node,
    );
  }

  update(block, row, isGrowing, room) {
    const thinking = block.redacted ? "" : block.thinking;
    setText(this.label, block.redacted ? "Thinking (hidden by the provider)" : isGrowing ? "Thinking…" : "Thought");
    setText(this.peek, shorten(thinking.slice(isGrowing ? -160 : 0, isGrowing ? undefined : 200), 120));
    this.text.update(thinking, room);
  }
}

function getLength(block) {
  return (block.text ?? block.thinking ?? "").length;
}

function updateNotes(node, row) {
  const notes = [...row.notes];
  const failure = row.message?.stop_reason === "aborted" ? null : row.message?.error_message;
  if (failure && !notes.some((note) => note.text === failure)) notes.push({ kind: "error", text: failure });
  if (row.message?.stop_reason === "length")
    notes.push({ kind: "retry", text: "The answer reached its longest length." });
  replace(
    node,
    notes.map(({ kind, text }) =>
      h(
        "p",
        { class: `note note-${kind}` },
        icon(kind === "error" ? "alert" : kind === "stopped" ? "stop" : "clock"),
        h("span", {}, text),
      ),
    ),
  );
}

/** "2 / 3" with arrows, where a message has siblings on other branches. */
function makeSwitch(row, actions) {
  const siblings = actions.findSiblings(row);
  if (siblings.length < 2) return null;
  const place = siblings.indexOf(row.id);
  const makeStep = (step, label) =>
    iconButton("chevron", label, () => actions.show(siblings[place + step]), {
      class: `icon-button step${step < 0 ? " step-back" : ""}`,
      disabled: siblings[place + step] === undefined,
    });
  return h(
    "span",
    { class: "switch" },
    makeStep(-1, "Previous branch"),
    `${place + 1} / ${siblings.length}`,
    makeStep(1, "Next branch"),
  );
}
