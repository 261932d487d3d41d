// The blocks of Markdown as plain values: { kind, start, end, ... } with places in the source.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const BLANK = /^\s*$/;

/** The top-level blocks of a text. The last one may go on when more text comes. */
export function parseBlocks(source) {
  const lines = source.split("\n");
  const blocks = [];
  let at = 0;
  let start = 0;
  while (at < lines.length) {
    if (BLANK.test(lines[at])) {
      start += lines[at++].length + 1;
      continue;
    }
    const block = takeBlock(lines, at);
    let end = start;
    for (; at < block.next; at++) end += lines[at].length + 1;
    blocks.push({ ...block, start, end: Math.min(end, source.length) });
    start = end;
  }
  return blocks;
}

function takeBlock(lines, at) {
  const line = lines[at];
  let found;
  if ((found = FENCE.exec(line))) return takeFence(lines, at, found);
  if ((found = HEADING.exec(line)))
    return { kind: "heading", level: found[1].length, text: found[2] ?? "", next: at + 1 };
  if (RULE.test(line)) return { kind: "rule", next: at + 1 };
  if (QUOTE.test(line)) return takeQuote(lines, at);
  if ((found = ITEM.exec(line))) return takeList(lines, at, found);
  if (line.includes("|") && TABLE_RULE.test(lines[at + 1] ?? "") && lines[at + 1].includes("-"))
    return takeTable(lines, at);
  if (/^(?: {4}|\t)/.test(line)) return takeIndented(lines, at);
  return takeParagraph(lines, at);
}

function takeFence(lines, at, [, fence, info]) {
  const close = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}\\s*$`);
  let end = at + 1;
  while (end < lines.length && !close.test(lines[end])) end++;
  const language = info.trim().split(/\s+/)[0] ?? "";
  return {
    kind: "code",
    language,
    text: lines.slice(at + 1, end).join("\n"),
    closed: end < lines.length,
    next: Math.min(end + 1, lines.length),
  };
}

function takeIndented(lines, at) {
  let end = at;
  while (end < lines.length && (/^(?: {4}|\t)/.test(lines[end]) || BLANK.test(lines[end]))) end++;
  while (BLANK.test(lines[end - 1])) end--;
  return {
    kind: "code",
    language: "",
    text: lines
      .slice(at, end)
      .map((line) => line.replace(/^(?: {4}|\t)/, ""))
      .join("\n"),
    closed: true,
    next: end,
  };
}

function takeQuote(lines, at) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end++;
  return {
    kind: "quote",
    text: lines
      .slice(at, end)
      .map((line) => line.replace(QUOTE, ""))
      .join("\n"),
    next: end,
  };
}

/** A list: items of the same kind of marker, with the lines that belong to them. */
function takeList(lines, at, [, , first]) {
  const isOrdered = /\d/.test(first);
  const items = [];
  let tight = true;
  let end = at;
  while (end < lines.length) {
    const found = ITEM.exec(lines[end]);
    if (found === null || /\d/.test(found[2]) !== isOrdered || RULE.test(lines[end])) break;
    const item = takeItem(lines, end, found);
    items.push(item.text);
    tight &&= !item.loose;
    end = item.next;
  }
  return { kind: "list", isOrdered, first: isOrdered ? parseInt(first, 10) : 1, tight, items, next: end };
}

function takeItem(lines, at, found) {
  const indent = found[1].length + found[2].length + Math.min(Math.max(found[3].length, 1), 4);
  const own = [lines[at].slice(Math.min(indent, found[0].length))];
  let end = at + 1;
  let loose = false;
  while (end < lines.length) {
    const line = lines[end];
    if (BLANK.test(line)) {
      const next = lines.slice(end, end + 3).find((one) => !BLANK.test(one));
      if (next === undefined || !/^\s*$/.test(next.slice(0, Math.min(indent, 2)))) {
        // After a blank line only another item or an indented line goes on with the list.
        if (next !== undefined && ITEM.test(next)) loose = true;
        if (next === undefined || !ITEM.test(next)) break;
        end++;
        break;
      }
      loose ||= own.length > 0;
      own.push("");
      end++;
    } else if (/^\s/.test(line) && line.search(/\S/) >= Math.min(indent, 2)) {
      own.push(line.slice(Math.min(indent, line.search(/\S/))));
      end++;
    } else if (ITEM.test(line) || isInterrupted(lines, end)) {
      break;
    } else {
      own.push(line); // a lazy continuation
      end++;
    }
  }
  while (end < lines.length && BLANK.test(lines[end]) && ITEM.test(lines[end + 1] ?? "")) end++;
  return { text: own.join("\n"), loose, next: end };
}

function takeTable(lines, at) {
  const aligns = splitRow(lines[at + 1]).map((cell) =>
    /^:-+:$/.test(cell) ? "center" : /-:$/.test(cell) ? "right" : "left",
  );
  const rows = [splitRow(lines[at])];
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && !BLANK.test(lines[end])) rows.push(splitRow(lines[end++]));
  return { kind: "table", aligns, rows, next: end };
}

function splitRow(line) {
  const inner = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(^|[^\\])\|$/, "$1");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function takeParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !BLANK.test(lines[end]) && !isInterrupted(lines, end)) {
    if (/^ {0,3}=+\s*$/.test(lines[end])) {
      return { kind: "heading", level: 1, text: lines.slice(at, end).join(" "), next: end + 1 };
    }
    end++;
  }
  return {
    kind: "paragraph",
    text: lines
      .slice(at, end)
      .map((line) => line.trimStart())
      .join("\n"),
    next: end,
  };
}

/** Whether a line ends the paragraph before it. */
function isInterrupted(lines, at) {
  const line = lines[at];
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    QUOTE.test(line) ||
    /^ {0,3}(?:[-*+]|1[.)]) +\S/.test(line)
  );
}
