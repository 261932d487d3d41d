// The panel at the side: context gauge, usage and cost, the timeline of a run, the tree of branches, files, settings.

import { formatCost, formatTokens } from "../app/format.js";
import { ArtifactList } from "./artifacts.js";
import { drawBranches } from "./branches.js";
import { h, replace } from "./dom.js";
import { drawTimeline } from "./timeline.js";

const MODES = ["ask", "accept-edits", "plan", "bypass"];
const LEVELS = ["off", "minimal", "low", "medium", "high"];

export class Inspector {
  constructor(page, { report, onshow }) {
    Object.assign(this, { report, onshow, session: null, chosen: null, drawn: "" });
    this.node = page.querySelector("#inspector");
    for (const name of ["gauge", "usage", "timeline", "tree", "settings", "run-choice"])
      this[name] = page.querySelector(`#${name}`);
    this.artifacts = new ArtifactList(page.querySelector("#artifacts"), report);
    this["run-choice"].addEventListener("change", (event) => this.choose(event.target.value));
  }

  setSession(session) {
    this.session = session;
    this.artifacts.setSession(session);
    this.chosen = null;
    this.drawn = this.drawnGauge = this.drawnTree = this.drawnSettings = "";
  }

  choose(id) {
    this.chosen = id === "latest" ? null : id;
    this.drawn = "";
    this.update();
  }

  update() {
    const { session } = this;
    if (!this.node.checkVisibility()) return; // it is closed
    const isEmpty = session === null || !session.isLoaded;
    this.node.classList.toggle("is-empty", isEmpty);
    if (isEmpty) {
      for (const name of ["gauge", "usage", "settings"]) replace(this[name]);
      drawTimeline(this.timeline, undefined);
      replace(this.tree, h("p", { class: "muted" }, "Branch from any message, and the branches are shown here."));
      this["run-choice"].hidden = true;
      return;
    }
    this.updateGauge(session);
    this.updateTimeline(session.log.runs, session.log.running);
    this.updateTree(session);
    this.artifacts.update();
    this.updateSettings(session.info ?? {});
  }

  updateGauge({ log, info }) {
    const { usage, context, version } = log.runs;
    const window = info?.context_window ?? log.config?.context?.max_context_tokens ?? null;
    const state = `${version} ${window} ${info?.model}`;
    if (state === this.drawnGauge) return;
    this.drawnGauge = state;
    if (usage.input + usage.output + usage.cache_read === 0) {
      replace(
        this.gauge,
        h(
          "p",
          { class: "muted" },
          usage.answers === 0 ? "Tokens and cost are shown here." : "The model reports no usage.",
        ),
      );
      return replace(this.usage);
    }
    const share = window ? Math.min(context / window, 1) : null;
    const words =
      share === null
        ? `${formatTokens(context)} tokens in context`
        : `${formatTokens(context)} of ${formatTokens(window)} tokens in context`;
    const meter = share === null ? null : makeMeter(share, words);
    replace(
      this.gauge,
      h(
        "div",
        { class: "gauge-line" },
        h("strong", {}, share === null ? formatTokens(context) : `${Math.round(share * 100)} %`),
        h("span", {}, words),
      ),
      meter,
    );
    const facts = [
      ["Input", formatTokens(usage.input + usage.cache_read + usage.cache_write)],
      ["from cache", formatTokens(usage.cache_read)],
      ["Output", formatTokens(usage.output)],
      ["Cost", usage.hasCost ? formatCost(usage.cost) : "unknown"],
    ];
    replace(
      this.usage,
      facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    );
  }

  updateTimeline(runs, running) {
    const run = this.chosen === null ? runs.list.at(-1) : runs.byId.get(this.chosen);
    const now = Date.now() / 1000;
    const isOpen = run !== undefined && run.end === null && running;
    const state = `${runs.version} ${run?.id} ${isOpen ? now.toFixed(1) : ""}`;
    if (state === this.drawn) return;
    this.drawn = state;
    drawTimeline(this.timeline, run, isOpen ? now : findLast(run));
    this.updateChoice(runs);
    clearTimeout(this.timer);
    if (isOpen) this.timer = setTimeout(() => this.update(), 500); // open bars grow
  }

  updateChoice(runs) {
    const select = this["run-choice"];
    select.hidden = runs.list.length < 2;
    const latest = runs.list.slice(-30).reverse();
    if (select.dataset.state === `${runs.list.length}`) return;
    select.dataset.state = `${runs.list.length}`;
    replace(
      select,
      h("option", { value: "latest" }, "Latest run"),
      latest.slice(1).map((run, place) => h("option", { value: run.id }, `Run ${runs.list.length - place - 1}`)),
    );
    select.value = this.chosen ?? "latest";
  }

  updateTree(session) {
    const state = `${session.log.entries.size} ${session.tip} ${session.log.tip}`;
    if (state === this.drawnTree) return;
    this.drawnTree = state;
    drawBranches(this.tree, session, this.onshow);
  }

  updateSettings(info) {
    const state = JSON.stringify([info.model, info.models, info.mode, info.thinking_level, info.agent]);
    if (state === this.drawnSettings) return;
    this.drawnSettings = state;
    const models = info.models?.length ? [...new Set([info.model, ...info.models])] : [];
    replace(
      this.settings,
      models.length > 1 ? this.makeSelect("Model", "model", info.model, models) : makeFact("Model", info.model),
      info.thinking_level ? this.makeSelect("Thinking", "thinking_level", info.thinking_level, LEVELS) : null,
      info.mode ? this.makeSelect("Approval", "mode", info.mode, MODES) : null,
      makeFact("Agent", info.agent),
    );
  }

  makeSelect(label, name, value, options) {
    const known = options.includes(value) ? options : [value, ...options];
    const select = h(
      "select",
      { onchange: () => this.configure(select, name, value) },
      known.map((one) => h("option", { value: one, selected: one === value }, one)),
    );
    return h("label", { class: "setting" }, h("span", {}, label), select);
  }

  async configure(select, name, before) {
    try {
      await this.session.configure({ [name]: select.value });
    } catch (error) {
      select.value = before;
      this.report(error);
    }
  }
}

function makeMeter(share, words) {
  const fill = h("div", { class: `meter-fill${share > 0.85 ? " is-full" : share > 0.65 ? " is-high" : ""}` });
  fill.style.width = `${Math.max(share * 100, 0.5)}%`;
  return h(
    "div",
    {
      class: "meter",
      role: "meter",
      "aria-label": words,
      "aria-valuemin": "0",
      "aria-valuemax": "100",
      "aria-valuenow": Math.round(share * 100),
    },
    fill,
  );
}

function makeFact(label, value) {
  return value
    ? h("div", { class: "setting" }, h("span", {}, label), h("span", { class: "setting-value" }, value))
    : null;
}

/** When a run that has no end was last heard of. */
function findLast(run) {
  return run === undefined
    ? 0
    : Math.max(run.start, ...run.bars.map((bar) => bar.to), ...[...run.open.values()].map((bar) => bar.from));
}
