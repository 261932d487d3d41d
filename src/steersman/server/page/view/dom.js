// Building nodes. Text is always a text node: nothing here parses markup.

import { showInvisible } from "../text/visible.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element: `h("button", { class: "x", onclick: f, "aria-label": "…" }, "text", child)`. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An SVG element. */
h.svg = (tag, props = {}, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** A text node that hides nothing. */
h.text = (text) => document.createTextNode(showInvisible(String(text)));

function fill(node, props, children) {
  append(node, children); // before dir="auto", with which a node looks through all its children for each further one
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  return node;
}

function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(node, child);
    else if (child instanceof Node) node.append(child);
    else if (child !== null && child !== undefined && child !== false && child !== "") node.append(h.text(child));
  }
}

/** Replace the children of a node. */
export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
}

/** Set the text of a node, only if it is another one: so nothing is announced or painted twice. */
export function setText(node, text) {
  const shown = showInvisible(text);
  if (node.textContent !== shown) node.textContent = shown;
}

const ICONS = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h10",
  search: "M11 4a7 7 0 1 1 0 14a7 7 0 0 1 0-14M16 16l4.5 4.5",
  panel: "M4 5h16v14H4zM14.5 5v14",
  send: "M12 19V6M6 11.5L12 5.5l6 6",
  stop: "M7.5 7.5h9v9h-9z",
  play: "M8 6l10 6l-10 6z",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6 6l12 12M18 6L6 18",
  chevron: "M9 6l6 6l-6 6",
  copy: "M9 9h10v10H9zM5 15V5h10",
  branch: "M7 5v14M7 14c0-5 10-2 10-8M17 4.5v2",
  redo: "M19 11a7 7 0 1 0-1.5 5M19.5 5.5V11H14",
  edit: "M5 19l1-4L16 5l3 3L9 18z",
  trash: "M5 7h14M9 7V4.5h6V7M7 7l1 12.5h8L17 7",
  sun: "M12 8a4 4 0 1 1 0 8a4 4 0 0 1 0-8M12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M18.7 5.3l-1.4 1.4M6.7 17.3l-1.4 1.4",
  moon: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10",
  auto: "M12 3.5a8.5 8.5 0 1 1 0 17a8.5 8.5 0 0 1 0-17v17",
  down: "M12 5v13M6 12.5l6 6l6-6",
  clock: "M12 4a8 8 0 1 1 0 16a8 8 0 0 1 0-16M12 8v4.5l3 2",
  alert: "M12 4l9 16H3zM12 10v4.5M12 17v.5",
};

/** An icon; it is decoration, so the control around it has the name. */
export function icon(name) {
  const path = h.svg("path", { d: ICONS[name] });
  return h.svg("svg", { class: `icon icon-${name}`, viewBox: "0 0 24 24", "aria-hidden": "true" }, path);
}

/** A button with an icon and a name. */
export function iconButton(name, label, onclick, props = {}) {
  return h(
    "button",
    { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...props },
    icon(name),
  );
}
