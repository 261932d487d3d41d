// The output of programs: colours of a terminal become classes, all other escape sequences are left out.

import { h } from "../view/dom.js";

// CSI, OSC (also without its end), and other two-character sequences.
const ESCAPE =
  /\u001b(?:\[([0-9;:?<=>]*)[ -/]*([@-~])|\][^\u0007\u001b]{0,4096}(?:\u0007|\u001b\\)?|[PX^_][^\u001b]{0,4096}(?:\u001b\\)?|[ -/]*[0-~])/g;
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/** Append a program's output to a node. */
export function appendOutput(node, text) {
  const style = { colour: "", bold: false, dim: false };
  let at = 0;
  const source = dropOverwritten(text);
  for (const found of source.matchAll(ESCAPE)) {
    appendStyled(node, source.slice(at, found.index), style);
    at = found.index + found[0].length;
    if (found[2] === "m") applySgr(style, found[1] ?? "");
  }
  appendStyled(node, source.slice(at), style);
}

/** The output without its escape sequences. */
export function stripEscapes(text) {
  return dropOverwritten(text).replace(ESCAPE, "");
}

/** Of a line that a program wrote several times, as for a progress bar, the last version. */
function dropOverwritten(text) {
  return text.includes("\r")
    ? text
        .replace(/\r\n/g, "\n")
        .replace(/[^\n]*\r(?=[^\n])/g, "")
        .replace(/\r/g, "")
    : text;
}

function appendStyled(node, text, style) {
  if (!text) return;
  const names = [style.colour && `ansi-${style.colour}`, style.bold && "ansi-bold", style.dim && "ansi-dim"].filter(
    Boolean,
  );
  node.append(names.length ? h("span", { class: names.join(" ") }, text) : h.text(text));
}

function applySgr(style, parameters) {
  const codes = parameters.split(/[;:]/).map(Number);
  for (let place = 0; place < codes.length; place++) {
    const code = codes[place];
    if (code === 0) Object.assign(style, { colour: "", bold: false, dim: false });
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code === 39) style.colour = "";
    else if (code === 38 || code === 48) place += codes[place + 1] === 5 ? 2 : 4;
    else if (code >= 30 && code <= 37) style.colour = COLOURS[code - 30];
    else if (code >= 90 && code <= 97) style.colour = COLOURS[code - 90];
  }
}
