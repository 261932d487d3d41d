// A run as a picture: the time of the model, of tools and of waiting as bars; tokens and cost as curves below.

import { formatCost, formatSeconds, formatTokens } from "../app/format.js";
import { h, replace } from "./dom.js";

const WIDTH = 300;
const BAR = 12;
const GAP = 4;
const CURVE = 44;
const LANES = { model: 0, wait: 1, tool: 2 };

/** Draw a run into a node. */
export function drawTimeline(node, run, now) {
  if (run === undefined) return replace(node, h("p", { class: "muted" }, "The times of a run are shown here."));
  const bars = [...run.bars, ...[...run.open.values()].map((bar) => ({ ...bar, to: now, isOpen: true }))];
  const end = Math.max(run.end ?? now, ...bars.map((bar) => bar.to), run.start + 0.001);
  const scale = (time) => ((time - run.start) / (end - run.start)) * WIDTH;
  const lanes = packLanes(bars);
  const height = lanes.count * (BAR + GAP);
  const whole = height + (run.tokens > 0 ? CURVE + 8 : 0);
  const parts = [
    run.turns
      .slice(1)
      .map((time) => h.svg("line", { class: "turn-line", x1: scale(time), x2: scale(time), y1: 0, y2: whole })),
    bars.map((bar, place) => makeBar(bar, scale, lanes.of[place] * (BAR + GAP))),
    makeCurve(run, "tokens", scale, height + 6, scale(end)),
    run.cost > 0 ? makeCurve(run, "cost", scale, height + 6, scale(end)) : null,
  ];
  const label = describeRun(run, bars, end);
  const picture = h.svg(
    "svg",
    { class: "timeline", viewBox: `-1 0 ${WIDTH + 2} ${whole}`, role: "img", "aria-label": label.long },
    parts,
  );
  replace(node, picture, makeAxis(end - run.start), makeLegend(run), h("p", { class: "timeline-words" }, label.short));
}

/** Model above, waiting below it, then as many lanes of tools as run at once. */
function packLanes(bars) {
  const ends = [];
  const hasWait = bars.some((bar) => bar.kind === "wait");
  const first = hasWait ? 2 : 1;
  const order = bars.map((_, place) => place).sort((a, b) => bars[a].from - bars[b].from);
  const of = [];
  for (const place of order) {
    const bar = bars[place];
    if (bar.kind !== "tool") {
      of[place] = LANES[bar.kind];
      continue;
    }
    let lane = ends.findIndex((end) => end <= bar.from + 1e-6);
    if (lane < 0) lane = ends.length < 6 ? ends.push(0) - 1 : 0;
    ends[lane] = bar.to;
    of[place] = first + lane;
  }
  return { of, count: first + Math.max(ends.length, 1) };
}

function makeBar(bar, scale, y) {
  const x = scale(bar.from);
  const width = Math.max(scale(bar.to) - x, 1.5);
  const names = ["bar", `bar-${bar.kind}`, bar.isError && "bar-error", bar.isOpen && "bar-open"]
    .filter(Boolean)
    .join(" ");
  const words = `${bar.kind === "wait" ? "waiting for an answer about " : ""}${bar.label || bar.kind}: ${formatSeconds(bar.to - bar.from)}`;
  return h.svg("rect", { class: names, x, y, width, height: BAR, rx: 2 }, h.svg("title", {}, words));
}

function makeCurve(run, name, scale, top, right) {
  const most = run.points.at(-1)?.[name] ?? 0;
  if (most === 0) return null;
  const y = (value) => top + CURVE - (value / most) * (CURVE - 4) - 1;
  let path = `M0 ${y(0)}`;
  for (const point of run.points) path += `H${scale(point.time).toFixed(2)}V${y(point[name]).toFixed(2)}`;
  path += `H${right.toFixed(2)}`;
  const area = name === "tokens" ? h.svg("path", { class: "curve-area", d: `${path}V${y(0)}H0Z` }) : null;
  return h.svg("g", {}, area, h.svg("path", { class: `curve curve-${name}`, d: path }));
}

function makeAxis(seconds) {
  return h(
    "div",
    { class: "axis", "aria-hidden": "true" },
    h("span", {}, "0"),
    h("span", {}, formatSeconds(seconds / 2)),
    h("span", {}, formatSeconds(seconds)),
  );
}

function makeLegend(run) {
  const entries = [
    ["model", "model"],
    ["tool", "tools"],
  ];
  if (run.bars.some((bar) => bar.kind === "wait") || [...run.open.values()].some((bar) => bar.kind === "wait"))
    entries.push(["wait", "your answer"]);
  if (run.tokens > 0) entries.push(["tokens", `${formatTokens(run.tokens)} tokens`]);
  if (run.cost > 0) entries.push(["cost", formatCost(run.cost)]);
  return h(
    "ul",
    { class: "legend" },
    entries.map(([kind, label]) => h("li", {}, h("i", { class: `key key-${kind}`, "aria-hidden": "true" }), label)),
  );
}

function describeRun(run, bars, end) {
  const sum = (kind) => bars.filter((bar) => bar.kind === kind).reduce((total, bar) => total + bar.to - bar.from, 0);
  const turns = `${run.turns.length} turn${run.turns.length === 1 ? "" : "s"}`;
  const tools = bars.filter((bar) => bar.kind === "tool").length;
  const state = run.end === null ? "running" : run.reason === "done" ? "done" : run.reason;
  const short = `${turns}, ${tools} tool call${tools === 1 ? "" : "s"}, ${formatSeconds(end - run.start)} · ${state}`;
  return {
    short,
    long: `Timeline of a run: ${short}. Model ${formatSeconds(sum("model"))}, tools ${formatSeconds(sum("tool"))}, ${run.tokens} tokens.`,
  };
}
