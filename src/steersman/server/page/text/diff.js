// Changes of files as coloured lines, and long texts that are shown a part at a time.

import { h } from "../view/dom.js";

const MOST_LINES = 400;
const MOST_CHARACTERS = 20_000;
const LONGEST_LINE = 2_000;

/** Whether a text looks like a unified diff, or like lines that are marked as added and removed. */
export function isDiff(text) {
  return /^@@ .*@@/m.test(text) || /^[-+] ?\S.*\n?([-+ ]|$)/m.test(text);
}

/** A diff: added lines are green, removed ones red, and each says so to a screen reader. */
export function makeDiff(text, longest = LONGEST_LINE) {
  const body = h("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": "Changes" });
  const lines = text.replace(/\n$/, "").split("\n");
  const numbers = { old: null, new: null };
  showParts(body, lines, MOST_LINES, (line) => makeLine(line, numbers, longest));
  return body;
}

function makeLine(line, numbers, longest) {
  const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
  if (hunk !== null) {
    numbers.old = Number(hunk[1]);
    numbers.new = Number(hunk[2]);
    return h("span", { class: "diff-line diff-hunk" }, line, "\n");
  }
  if (numbers.new === null && /^(---|\+\+\+) /.test(line))
    return h("span", { class: "diff-line diff-file" }, line, "\n");
  const kind = line[0] === "+" ? "added" : line[0] === "-" ? "removed" : "same";
  let number = "";
  if (numbers.new !== null) {
    number = kind === "removed" ? numbers.old++ : numbers.new++;
    if (kind === "same") numbers.old++;
  }
  const shown =
    line.length > longest ? `${line.slice(0, longest)} … (${line.length.toLocaleString("en")} characters)` : line;
  const gutter = number === "" ? null : h("span", { class: "diff-number", "aria-hidden": "true" }, number);
  return h("span", { class: `diff-line diff-${kind}` }, gutter, shown, "\n");
}

/** The counts of added and removed lines. */
export function countChanges(text) {
  const lines = text.split("\n");
  const added = lines.filter((line) => line.startsWith("+") && !line.startsWith("+++ ")).length;
  return { added, removed: lines.filter((line) => line.startsWith("-") && !line.startsWith("--- ")).length };
}

/** Append a long text in parts: the first at once, the others when they are asked for. */
export function showText(node, text, append) {
  const parts = [];
  for (let at = 0; at < text.length; at += MOST_CHARACTERS) parts.push(text.slice(at, at + MOST_CHARACTERS));
  showParts(node, parts, 1, (part) => {
    const span = h("span");
    append(span, part);
    return span;
  });
}

function showParts(node, parts, most, make) {
  node.append(...parts.slice(0, most).map(make));
  const left = parts.slice(most);
  if (left.length === 0) return;
  const label =
    most === 1
      ? `Show more (${left.join("").length.toLocaleString("en")} characters)`
      : `Show ${left.length.toLocaleString("en")} more lines`;
  const more = h(
    "button",
    { type: "button", class: "more", onclick: () => (more.remove(), showParts(node, left, most, make)) },
    label,
  );
  node.append(more);
}
