// Code with a light touch of colour: comments, strings, numbers and the usual keywords of most languages.

import { h, iconButton } from "../view/dom.js";
import { makeDiff } from "./diff.js";

const LONGEST = 30_000;
const HASH_COMMENTS =
  /^(py|python|sh|bash|zsh|shell|console|yaml|yml|toml|ini|rb|ruby|r|perl|make|makefile|dockerfile|elixir|nix)$/i;
const DASH_COMMENTS = /^(sql|lua|hs|haskell|ada|elm)$/i;
const NO_COLOUR = /^(|text|txt|plain|output|log|md|markdown)$/i;
const KEYWORDS = new Set(
  `abstract and as assert async await begin break case catch class const continue def default defer del do done elif else end enum
  esac except export extends extern false False fi finally fn for foreach from func function global go if impl implements import in
  interface is lambda let local loop match mod module mut namespace new nil None nonlocal not null of or package pass private
  protected pub public raise readonly ref return select self Self static struct super switch template then this throw trait true True
  try type typedef typeof undefined union unless unsafe until use using var void when where while with yield
  SELECT FROM WHERE AND OR NOT INSERT INTO VALUES UPDATE SET DELETE CREATE TABLE JOIN LEFT INNER ON GROUP BY ORDER LIMIT AS NULL`.split(
    /\s+/,
  ),
);

/** A block of code with its language and a button that copies it. */
export function makeCode(text, language = "") {
  if (/^(diff|patch)$/i.test(language)) return makeDiff(text);
  const code = h("code", {});
  appendColoured(code, text, language);
  const frame = h(
    "pre",
    { class: "code-text", tabindex: "0", "aria-label": language ? `Code, ${language}` : "Code", role: "region" },
    code,
  );
  return h(
    "div",
    { class: "code" },
    h(
      "div",
      { class: "code-head" },
      h("span", {}, language || "text"),
      makeCopyButton(() => text),
    ),
    frame,
  );
}

/** A button that copies a text. */
export function makeCopyButton(getText, label = "Copy") {
  const button = iconButton("copy", label, async () => {
    try {
      await navigator.clipboard.writeText(getText());
    } catch {
      return; // the browser does not allow it here
    }
    button.classList.add("is-done");
    button.addEventListener("blur", () => button.classList.remove("is-done"), { once: true });
    button.addEventListener("pointerleave", () => button.classList.remove("is-done"), { once: true });
  });
  return button;
}

/** Append code to a node, coloured if the language is known and it is not too long. */
export function appendColoured(node, text, language) {
  if (text.length > LONGEST || NO_COLOUR.test(language)) {
    node.append(h.text(text));
    return;
  }
  const token = makePattern(language);
  let at = 0;
  for (const found of text.matchAll(token)) {
    const kind = classify(found);
    if (kind === null) continue;
    if (found.index > at) node.append(h.text(text.slice(at, found.index)));
    node.append(h("span", { class: `code-${kind}` }, found[0]));
    at = found.index + found[0].length;
  }
  node.append(h.text(text.slice(at)));
}

function makePattern(language) {
  const comment = HASH_COMMENTS.test(language)
    ? "#[^\\n]*"
    : DASH_COMMENTS.test(language)
      ? "--[^\\n]*"
      : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?\\*\\/|<!--[\\s\\S]*?-->";
  const string = `"""[\\s\\S]*?"""|"(?:[^"\\\\\\n]|\\\\.)*"|'(?:[^'\\\\\\n]|\\\\.)*'|\`(?:[^\`\\\\]|\\\\.)*\``;
  return new RegExp(`(${comment})|(${string})|(\\b\\d[\\w.]*\\b)|([A-Za-z_]\\w*)(\\s*\\()?`, "g");
}

function classify(found) {
  if (found[1] !== undefined) return "comment";
  if (found[2] !== undefined) return "string";
  if (found[3] !== undefined) return "number";
  return KEYWORDS.has(found[0]) ? "keyword" : null;
}
