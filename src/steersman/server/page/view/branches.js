// The tree of branches as a picture: lanes as in a graph of commits, and beside each point a button that leads there.

import { getText, shorten } from "../app/format.js";
import { h, replace } from "./dom.js";

const ROW = 30;
const LANE = 14;
const MOST = 60; // with more prompts than this only forks and ends are drawn
const MOST_ROWS = 200;

/** Draw the tree of a log into a node; `show(leaf, id)` leads to an entry. */
export function drawBranches(node, session, show) {
  const { log } = session;
  if (log.entries.size === 0)
    return replace(node, h("p", { class: "muted" }, "Branch from any message, and the branches are shown here."));
  const points = findPoints(log);
  const onPath = new Set(log.findPath(session.tip).map((entry) => entry.id));
  const lanes = assignLanes(points);
  const width = (Math.max(...points.map((point) => lanes.get(point.id))) + 1) * LANE + 8;
  const place = new Map(
    points.map((point, row) => [point.id, { x: lanes.get(point.id) * LANE + 10, y: row * ROW + ROW / 2 }]),
  );
  const lines = points
    .filter((point) => point.above !== null)
    .map((point) => makeEdge(place.get(point.above), place.get(point.id), onPath.has(point.id), point.skipped));
  const dots = points.map((point) =>
    makeDot(place.get(point.id), point, onPath.has(point.id), point.id === session.log.tip),
  );
  const svg = h.svg(
    "svg",
    {
      class: "tree-picture",
      width,
      height: points.length * ROW,
      viewBox: `0 0 ${width} ${points.length * ROW}`,
      "aria-hidden": "true",
    },
    lines,
    dots,
  );
  const buttons = points.map((point) => makeButton(point, log, onPath, session, show));
  replace(node, h("div", { class: "tree" }, svg, h("ol", { class: "tree-points" }, buttons)));
}

/** The entries that are drawn: prompts, forks, what follows a fork, and ends; parents first. */
function findPoints(log) {
  const entries = [...log.entries.values()].filter((entry) => !entry.isFolded);
  const prompts = entries.filter((entry) => entry.role === "user").length;
  const isFork = (id) => (log.children.get(id)?.length ?? 0) > 1;
  const keeps = (entry) =>
    entry.parent === null ||
    isFork(entry.id) ||
    isFork(entry.parent) ||
    !log.children.has(entry.id) ||
    (prompts <= MOST && entry.role === "user");
  const kept = new Set(entries.filter(keeps).map((entry) => entry.id));
  const points = entries.filter((entry) => kept.has(entry.id)).slice(-MOST_ROWS);
  const shown = new Set(points.map((entry) => entry.id));
  return points.map((entry) => ({ ...findAbove(log, entry, shown), id: entry.id, entry }));
}

function findAbove(log, entry, shown) {
  let skipped = 0;
  for (let above = log.entries.get(entry.parent); above !== undefined; above = log.entries.get(above.parent)) {
    if (shown.has(above.id)) return { above: above.id, skipped };
    if (!above.isFolded) skipped++;
  }
  return { above: null, skipped: 0 };
}

/** The first child goes on in the lane of its parent; each other one gets a lane of its own. */
function assignLanes(points) {
  const lanes = new Map();
  const taken = new Set();
  let most = -1;
  for (const { id, above } of points) {
    const inherits = above !== null && !taken.has(above);
    if (inherits) taken.add(above);
    lanes.set(id, inherits ? lanes.get(above) : ++most);
  }
  return lanes;
}

function makeEdge(from, to, isOnPath, skipped) {
  const bend =
    from.x === to.x
      ? `V${to.y}`
      : `C${from.x} ${from.y + ROW * 0.7} ${to.x} ${from.y + ROW * 0.3} ${to.x} ${from.y + ROW}V${to.y}`;
  return h.svg("path", {
    class: `edge${isOnPath ? " is-on-path" : ""}${skipped > 2 ? " is-long" : ""}`,
    d: `M${from.x} ${from.y}${bend}`,
  });
}

function makeDot({ x, y }, { entry }, isOnPath, isTip) {
  return h.svg("circle", {
    class: `dot-${entry.role === "user" ? "user" : "answer"}${isOnPath ? " is-on-path" : ""}${isTip ? " is-tip" : ""}`,
    cx: x,
    cy: y,
    r: isTip ? 5 : 3.5,
  });
}

function makeButton(point, log, onPath, session, show) {
  const { entry } = point;
  const names = [...entry.calls.values()].map((call) => call.name).join(", ");
  const words =
    shorten(
      getText(entry.message)
        .slice(0, 400)
        .replace(/^[#>*\s]+|[*`]+/gm, ""),
      60,
    ) ||
    names ||
    (entry.role === "assistant" ? "No answer" : entry.role);
  const leaf = onPath.has(entry.id) ? session.tip : log.findLeaf(entry.id);
  const label = `${entry.role === "user" ? "You" : "Answer"}: ${words}`;
  const skipped = point.skipped > 2 ? h("span", { class: "skipped" }, `+${point.skipped}`) : null;
  return h(
    "li",
    {},
    h(
      "button",
      {
        type: "button",
        class: `point point-${entry.role}${onPath.has(entry.id) ? " is-on-path" : ""}`,
        title: label,
        "aria-current": entry.id === session.tip ? "true" : null,
        onclick: () => show(leaf, entry.id),
      },
      h("span", { dir: "auto" }, words),
      skipped,
    ),
  );
}
