// The box at the bottom: prompts, steers while a run goes on, queues with Alt+Enter, stops and continues.

import { shorten } from "../app/format.js";
import { h, icon, replace, setText } from "./dom.js";

export class Composer {
  /** `say(text, { kind, at })` sends; `report` shows errors. */
  constructor(page, { say, report, escape }) {
    Object.assign(this, { say, report, escape, session: null, origin: null, drafts: new Map() });
    this.form = page.querySelector("#composer");
    this.text = page.querySelector("#text");
    this.hint = page.querySelector("#hint");
    this.chip = page.querySelector("#origin");
    this.buttons = Object.fromEntries(
      ["send", "queue", "stop", "continue"].map((name) => [name, page.querySelector(`#${name}`)]),
    );
    this.form.addEventListener("submit", (event) => (event.preventDefault(), this.submit("steer")));
    this.buttons.queue.addEventListener("click", () => this.submit("follow_up"));
    this.buttons.stop.addEventListener("click", () => this.run("stop"));
    this.buttons.continue.addEventListener("click", () => this.run("resume"));
    this.text.addEventListener("keydown", (event) => this.takeKey(event));
    this.text.addEventListener("input", () => this.fit());
  }

  /** Another session: each keeps its own draft. */
  setSession(session) {
    this.drafts.set(this.session?.id ?? "", this.text.value);
    this.session = session;
    this.text.value = this.drafts.get(session?.id ?? "") ?? "";
    this.setOrigin(null);
    this.fit();
  }

  /** Say the next message from an earlier entry: { at, label }. */
  setOrigin(origin, text = null) {
    this.origin = origin;
    this.chip.hidden = origin === null;
    if (origin !== null) {
      const cancel = h(
        "button",
        { type: "button", class: "chip-cancel", "aria-label": "Do not branch", onclick: () => this.setOrigin(null) },
        icon("cross"),
      );
      replace(this.chip, icon("branch"), h("span", {}, `A new branch after “${shorten(origin.label, 60)}”`), cancel);
    }
    if (text !== null) this.setText(text);
    if (origin !== null || text !== null) this.text.focus();
    this.update();
  }

  setText(text) {
    this.text.value = text;
    this.fit();
  }

  update() {
    const { session, buttons } = this;
    const running = Boolean(session?.log.running) && !session.isElsewhere;
    buttons.stop.hidden = !running;
    buttons.queue.hidden = !running;
    buttons.continue.hidden = !session?.canContinue || session.log.questions.size > 0;
    setText(
      buttons.send.querySelector("span"),
      running ? "Steer" : this.origin !== null || session?.isElsewhere ? "Branch" : "Send",
    );
    this.form.classList.toggle("is-running", running);
    this.text.placeholder = running ? "Steer the run…" : "Ask, or say what to do…";
    setText(
      this.hint,
      running
        ? "Enter steers · Alt+Enter queues for the end"
        : "Enter sends · Shift+Enter new line · ? for keys",
    );
    this.updateReady();
  }

  updateReady() {
    const nothing = this.text.value.trim() === "";
    this.buttons.send.disabled = this.buttons.queue.disabled = nothing;
  }

  fit() {
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(this.text.scrollHeight, innerHeight * 0.4)}px`;
    this.updateReady();
  }

  takeKey(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.submit(event.altKey ? "follow_up" : "steer");
    } else if (event.key === "Escape") {
      if (this.origin !== null) this.setOrigin(null);
      else this.escape();
    }
  }

  async submit(kind) {
    const text = this.text.value.trim();
    if (text === "") return;
    const at = this.origin?.at ?? (this.session?.isElsewhere ? this.session.tip : null);
    this.setText("");
    this.setOrigin(null);
    try {
      await this.say(text, { kind, at });
    } catch (error) {
      if (this.text.value === "") this.setText(text);
      this.report(error);
    }
  }

  async run(action) {
    try {
      await this.session[action]();
    } catch (error) {
      this.report(error);
    }
  }
}
