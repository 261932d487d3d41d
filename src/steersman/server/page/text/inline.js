// Markdown inside a paragraph, as nodes: code, emphasis, links. Images become links, so nothing is ever loaded.

import { h } from "../view/dom.js";

const DEEPEST = 6;
const LONGEST = 20_000; // a longer paragraph is shown as it is
const LONGEST_LINK = 4_000;
const SPECIAL = /[\\`*_~[!<\n]|https?:\/\//g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const SAFE_PROTOCOLS = new Set(["http:", "https:", "mailto:"]);

/** The nodes of inline Markdown. */
export function renderInline(source, depth = 0) {
  if (source.length > LONGEST || depth > DEEPEST) return [h.text(source)];
  const scanner = new Scanner(source, depth);
  scanner.scan();
  return joinEmphasis(scanner.parts);
}

/** The address of a link if following it is harmless, else null. */
export function checkAddress(address) {
  try {
    const url = new URL(address);
    return SAFE_PROTOCOLS.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** A link that opens in a new tab and tells the other site nothing. */
export function makeLink(address, children) {
  const href = checkAddress(address);
  if (href === null)
    return h("span", { class: "dead-link", title: "This address is not followed" }, children, " (", address, ")");
  return h("a", { href, target: "_blank", rel: "noopener noreferrer nofollow", title: href }, children);
}

class Scanner {
  constructor(source, depth) {
    this.source = source;
    this.depth = depth;
    this.parts = []; // nodes, and runs of emphasis characters that wait for their partner
    this.at = 0;
    this.without = new Set(); // lengths of backtick runs that have no partner further on
  }

  scan() {
    const { source } = this;
    let from = 0;
    while (this.at < source.length) {
      SPECIAL.lastIndex = this.at;
      const found = SPECIAL.exec(source);
      if (found === null) break;
      this.at = found.index;
      this.addText(source.slice(from, this.at));
      from = this.at;
      if (!this.take(found[0])) {
        this.at = from + 1;
        this.addText(source[from]);
      }
      from = this.at;
    }
    this.addText(source.slice(from));
  }

  addText(text) {
    if (!text) return;
    const last = this.parts.at(-1);
    if (last?.nodeType === Node.TEXT_NODE) last.appendData(h.text(text).data);
    else this.parts.push(h.text(text));
  }

  /** Take what begins here; false if it is only text. */
  take(mark) {
    if (mark === "\\") return this.takeEscape();
    if (mark === "`") return this.takeCode();
    if (mark === "\n") return this.takeBreak();
    if (mark === "[" || mark === "!") return this.takeLink(mark === "!");
    if (mark === "<") return this.takeAutolink();
    if (mark.startsWith("http")) return this.takeBareUrl();
    return this.takeRun(mark);
  }

  takeEscape() {
    const next = this.source[this.at + 1];
    if (next === "\n") return this.addBreak(2);
    if (next === undefined || !PUNCTUATION.test(next)) return false;
    this.addText(next);
    this.at += 2;
    return true;
  }

  takeBreak() {
    const last = this.parts.at(-1);
    if (last?.nodeType === Node.TEXT_NODE && last.data.endsWith("  ")) return this.addBreak(1);
    return false;
  }

  addBreak(length) {
    this.parts.push(h("br"));
    this.at += length;
    return true;
  }

  takeCode() {
    const ticks = /`+/y;
    ticks.lastIndex = this.at;
    const run = ticks.exec(this.source)[0];
    const start = this.at + run.length;
    const end = this.without.has(run.length) ? -1 : this.findTicks(run, start);
    if (end < 0) {
      this.without.add(run.length);
      this.addText(run);
      this.at = start;
      return true;
    }
    let code = this.source.slice(start, end).replaceAll("\n", " ");
    if (/^ .*[^ ].* $/.test(code)) code = code.slice(1, -1);
    this.parts.push(h("code", {}, code));
    this.at = end + run.length;
    return true;
  }

  findTicks(run, start) {
    for (let at = this.source.indexOf(run, start); at >= 0;) {
      let end = at + run.length;
      if (this.source[end] !== "`") return at;
      while (this.source[end] === "`") end++;
      at = this.source.indexOf(run, end);
    }
    return -1;
  }

  takeLink(isImage) {
    const open = this.at + (isImage ? 1 : 0);
    if (this.source[open] !== "[") return false;
    const close = findClose(this.source, open, "[", "]");
    if (close < 0 || this.source[close + 1] !== "(") return false;
    const end = findClose(this.source, close + 1, "(", ")");
    if (end < 0) return false;
    const label = this.source.slice(open + 1, close);
    const address = this.source
      .slice(close + 2, end)
      .trim()
      .replace(/\s+["'(].*$/s, "")
      .replace(/^<(.*)>$/, "$1");
    const shown = isImage
      ? [h("span", { class: "image-mark" }, "image: "), label || address]
      : renderInline(label, this.depth + 1);
    this.parts.push(makeLink(address, shown));
    this.at = end + 1;
    return true;
  }

  takeAutolink() {
    const link = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y;
    link.lastIndex = this.at;
    const found = link.exec(this.source);
    if (found === null) return false;
    this.parts.push(makeLink(found[1], found[1].replace(/^mailto:/, "")));
    this.at += found[0].length;
    return true;
  }

  takeBareUrl() {
    const url = /https?:\/\/[^\s<>"'`\]]{1,2000}/y;
    url.lastIndex = this.at;
    const found = url.exec(this.source);
    if (found === null) return false;
    let address = found[0].replace(/[.,;:!?*_~]+$/, "");
    while (address.endsWith(")") && address.split("(").length < address.split(")").length)
      address = address.slice(0, -1);
    this.parts.push(makeLink(address, address));
    this.at += address.length;
    return true;
  }

  takeRun(mark) {
    const { source } = this;
    let end = this.at;
    while (source[end] === mark) end++;
    const length = end - this.at;
    const before = source[this.at - 1] ?? " ";
    const after = source[end] ?? " ";
    const inWord = mark === "_" && /[\p{L}\p{N}]/u.test(before) && /[\p{L}\p{N}]/u.test(after);
    if (inWord || (mark === "~" && length !== 2)) {
      this.addText(source.slice(this.at, end));
    } else {
      this.parts.push({ mark, length, opens: /\S/.test(after), closes: /\S/.test(before) });
    }
    this.at = end;
    return true;
  }
}

/** The place of the bracket that closes the one at `open`, within a bounded distance. */
function findClose(source, open, left, right) {
  let depth = 0;
  const last = Math.min(source.length, open + LONGEST_LINK);
  for (let at = open; at < last; at++) {
    const one = source[at];
    if (one === "\\") at++;
    else if (one === left) depth++;
    else if (one === right && --depth === 0) return at;
  }
  return -1;
}

/** Pair the runs of emphasis characters, and wrap what is between them. */
function joinEmphasis(parts) {
  const done = [];
  const openers = []; // places in `done`
  for (const part of parts) {
    if (part instanceof Node) {
      done.push(part);
      continue;
    }
    if (part.closes) closeRuns(part, done, openers);
    if (part.length > 0) {
      if (part.opens && openers.length < 100) openers.push(done.length);
      done.push(part);
    }
  }
  return done.map((part) => (part instanceof Node ? part : h.text(part.mark.repeat(part.length))));
}

function closeRuns(closer, done, openers) {
  for (let top = openers.length - 1; top >= 0 && closer.length > 0; top--) {
    const opener = done[openers[top]];
    if (opener.mark !== closer.mark) continue;
    const used = closer.mark === "~" ? 2 : Math.min(2, opener.length, closer.length);
    const inside = done
      .splice(openers[top] + 1)
      .map((part) => (part instanceof Node ? part : h.text(part.mark.repeat(part.length))));
    const tag = closer.mark === "~" ? "del" : used === 2 ? "strong" : "em";
    opener.length -= used;
    closer.length -= used;
    openers.length = top + (opener.length > 0 ? 1 : 0);
    if (opener.length === 0) done.pop();
    done.push(h(tag, {}, inside));
    if (opener.length > 0) top++;
  }
}
