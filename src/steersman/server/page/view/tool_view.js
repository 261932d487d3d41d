// A tool call: one line that says what it does, and below it arguments, live output, result and changes.

import { formatSeconds, shorten } from "../app/format.js";
import { appendOutput, stripEscapes } from "../text/ansi.js";
import { appendColoured } from "../text/code.js";
import { countChanges, makeDiff, showText } from "../text/diff.js";
import { h, icon, replace, setText } from "./dom.js";
import { makePicture } from "./picture.js";

const STATUS = {
  pending: "not started",
  waiting: "waits for approval",
  running: "running",
  done: "done",
  error: "failed",
  denied: "denied",
  skipped: "skipped",
  cancelled: "cancelled",
};
const ICONS = {
  done: "check",
  error: "cross",
  denied: "cross",
  skipped: "cross",
  cancelled: "cross",
  waiting: "clock",
};
const TAIL = 4_000; // characters of live output that are shown
const SHORT_DIFF = 30; // lines
const MOST_ARGUMENTS = 200; // each in a row of its own

export class ToolView {
  constructor(opened, key) {
    this.opened = opened;
    this.key = key;
    this.mark = h("span", { class: "tool-mark" });
    this.name = h("span", { class: "tool-name" });
    this.gist = h("span", { class: "tool-gist" });
    this.facts = h("span", { class: "tool-facts" });
    this.body = h("div", { class: "tool-body" });
    this.summary = h(
      "summary",
      { onclick: () => (this.touched = true) },
      this.mark,
      this.name,
      this.gist,
      this.facts,
      icon("chevron"),
    );
    this.node = h("details", { class: "tool", ontoggle: () => this.remember() }, this.summary, this.body);
    if (opened.has(key)) this.node.open = opened.get(key);
    this.shown = "";
  }

  remember() {
    if (this.touched) this.opened.set(this.key, this.node.open);
    if (this.node.open) this.updateBody();
  }

  update(block, row) {
    const call = row.calls.get(block.id) ?? { status: "pending", output: "", result: null };
    const status = block.complete === false && row.isLive ? "writing" : call.status;
    const args = call.args && Object.keys(call.args).length > 0 ? call.args : (block.arguments ?? {});
    Object.assign(this, { block, call, args, status, diff: call.result?.details?.diff });
    this.node.dataset.status = row.isCut ? "pending" : status;
    this.node.dataset.call = block.id;
    setText(this.name, block.name);
    setText(this.gist, describeGist(block, args, status));
    this.updateMark(status);
    this.updateFacts(call, status);
    if (!this.touched && !this.opened.has(this.key))
      this.node.open = status === "running" && call.output !== "" ? true : status === "error" || this.isShortDiff();
    if (this.node.open) this.updateBody();
  }

  isShortDiff() {
    return typeof this.diff === "string" && this.diff.split("\n", SHORT_DIFF + 1).length <= SHORT_DIFF;
  }

  updateMark(status) {
    if (this.mark.dataset.status === status) return;
    this.mark.dataset.status = status;
    const name = ICONS[status];
    replace(
      this.mark,
      name ? icon(name) : h("i", { class: "spinner", "aria-hidden": "true" }),
      h("span", { class: "hidden" }, `${STATUS[status] ?? "is being written"}: `),
    );
  }

  updateFacts(call, status) {
    const facts = [];
    if (typeof this.diff === "string") {
      const { added, removed } = countChanges(this.diff);
      facts.push(
        h("span", { class: "count-added" }, `+${added}`),
        h("span", { class: "count-removed" }, `−${removed}`),
      );
    }
    const code = call.result?.details?.exit_code;
    if (typeof code === "number" && code !== 0) facts.push(h("span", { class: "count-removed" }, `exit ${code}`));
    if (["denied", "skipped", "cancelled", "waiting"].includes(status)) facts.push(STATUS[status]);
    if (call.duration > 0.0005 && (status === "done" || status === "error")) facts.push(formatSeconds(call.duration));
    replace(
      this.facts,
      facts.map((fact) => (typeof fact === "string" ? h("span", {}, fact) : fact)),
    );
  }

  updateBody() {
    if (this.block === undefined) return;
    const { call, block } = this;
    const live = call.result === null ? call.output.slice(-TAIL) : null;
    const written = block.complete === false ? block.raw_arguments : null;
    const state = JSON.stringify([
      this.status,
      this.args,
      live?.length,
      call.output.length,
      written?.length,
      call.result === null,
    ]);
    if (state === this.shown) return;
    this.shown = state;
    replace(
      this.body,
      this.makeArguments(written),
      live ? makePre("Output so far", live, "output") : null,
      call.result ? this.makeResult(call.result) : null,
    );
    const output = this.body.querySelector(".output");
    if (live && output) output.scrollTop = output.scrollHeight;
  }

  makeArguments(written) {
    const args = { ...this.args };
    if (written !== null && written !== undefined) return makePre("Arguments", written, "args");
    if (this.block.raw_arguments) return makePre("Arguments", this.block.raw_arguments, "args");
    const parts = [];
    if (this.block.name === "bash" && typeof args.command === "string") {
      parts.push(makePre("Command", args.command, "args command", "bash"));
      delete args.command;
    }
    if (typeof this.diff === "string") for (const name of ["edits", "content", "old", "new"]) delete args[name];
    if (Object.keys(args).length > 0) parts.push(makeArgumentList(args));
    return parts;
  }

  makeResult(result) {
    const parts = [];
    if (typeof this.diff === "string" && this.diff) parts.push(makeDiff(this.diff));
    for (const block of result.content) {
      if (block.type === "text" && block.text && !(parts.length > 0 && this.diff))
        parts.push(makePre(result.is_error ? "Error" : "Result", block.text, "output"));
      else if (block.type !== "text") parts.push(makePicture(block));
    }
    return parts.length > 0 ? parts : h("p", { class: "muted" }, "No output.");
  }
}

function makePre(label, text, kind, language = null) {
  const pre = h("pre", { class: kind, tabindex: "0", role: "region", "aria-label": label });
  showText(pre, text, (node, part) =>
    language === null ? appendOutput(node, part) : appendColoured(node, part, language),
  );
  return pre;
}

/** Arguments as a list of names and values. */
export function makeArgumentList(args) {
  const entries = Object.entries(args);
  const rest = entries.splice(MOST_ARGUMENTS);
  if (rest.length > 0) entries.push([`${rest.length.toLocaleString("en")} more`, Object.fromEntries(rest)]);
  const rows = entries.map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    const shown = h("span", {});
    showText(shown, text, (node, part) => node.append(h.text(part)));
    return [h("dt", {}, name), h("dd", {}, shown)];
  });
  return h("dl", { class: "args" }, rows);
}

/** The one argument that says most. */
function describeGist(block, args, status) {
  if (status === "writing") return shorten((block.raw_arguments ?? "").slice(-120), 100);
  for (const name of ["command", "path", "url", "pattern", "query", "task", "prompt", "target", "name"]) {
    if (typeof args[name] === "string") return shorten(stripEscapes(args[name].slice(0, 400)), 160);
  }
  const values = Object.values(args);
  return values.length === 0
    ? ""
    : shorten(typeof values[0] === "string" ? values[0] : JSON.stringify(args).slice(0, 400), 160);
}
