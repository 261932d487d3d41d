// Questions about tool calls: a card with the exact change or command, and three answers, by mouse or by key.

import { PACE } from "../app/api.js";
import { formatSeconds } from "../app/format.js";
import { appendColoured } from "../text/code.js";
import { makeDiff, showText } from "../text/diff.js";
import { h, icon, replace, setText } from "./dom.js";

const EDITING = new Set(["edit", "write"]);
// When a question comes or goes, another one may be where the last one was: for so many milliseconds none takes an answer.
const SETTLING = 500 * PACE;

export class Approvals {
  constructor(page, report) {
    this.node = page.querySelector("#approvals");
    this.report = report;
    this.cards = new Map();
    this.session = null;
    this.isSettled = true;
    page.addEventListener("keydown", (event) => this.answerByKey(event));
  }

  setSession(session) {
    this.session = session;
    this.cards.clear();
    replace(this.node);
  }

  update() {
    const questions = this.session?.isLoaded && !this.session.isElsewhere ? this.session.log.questions : new Map();
    const before = [...this.cards.keys()];
    for (const [id, card] of this.cards) {
      if (questions.has(id)) continue;
      const hadFocus = card.node.contains(document.activeElement);
      card.node.remove();
      this.cards.delete(id);
      if (hadFocus) (this.node.querySelector(".approval") ?? document.querySelector("#text")).focus();
    }
    for (const [id, question] of questions) {
      if (this.cards.has(id)) continue;
      const card = new Card(question, (answer, reason) => this.answer(card, answer, reason));
      this.cards.set(id, card);
      this.node.append(card.node);
    }
    if (String([...this.cards.keys()]) !== String(before)) this.settle();
    this.node.hidden = this.cards.size === 0;
    setText(document.querySelector("#approvals-count"), this.cards.size > 1 ? `${this.cards.size} questions` : "");
  }

  /** Take no answer until people can have seen which questions there are now. */
  settle() {
    this.setSettled(false);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.setSettled(true), SETTLING);
  }

  setSettled(isSettled) {
    this.isSettled = isSettled;
    for (const card of this.cards.values()) card.setSettled(isSettled);
  }

  /** Move to the first question; false if there is none. */
  focus() {
    const first = this.node.querySelector(".approval");
    first?.focus();
    return first !== null;
  }

  async answer(card, answer, reason) {
    if (card.isAnswered || !this.isSettled) return;
    card.setAnswered(true);
    const id = card.question.approval_id;
    try {
      if (answer === "deny") await this.session.deny(id, reason);
      else await this.session.approve(id, { remember: answer === "always" });
    } catch (error) {
      card.setAnswered(false);
      this.report(error);
    }
  }

  /**
   * y, n and a answer the question with the focus, or the only one while no field has it. One that is out of sight, or
   * one of several, gets the focus first: people may be reading another.
   */
  answerByKey(event) {
    const answer = { y: "approve", n: "deny", a: "always" }[event.key.toLowerCase()];
    const typing = event.target.closest("input, textarea, select, [contenteditable], dialog");
    if (answer === undefined || typing !== null || event.ctrlKey || event.metaKey || event.altKey || event.repeat)
      return;
    const inside = event.target.closest(".approval");
    const card = [...this.cards.values()].find((one) => inside === null || one.node === inside);
    if (card === undefined) return;
    event.preventDefault();
    if ((inside !== null || this.cards.size === 1) && this.isInSight(card)) {
      void this.answer(card, answer, card.reason.value);
      return;
    }
    card.node.focus();
    card.node.scrollIntoView({ block: "nearest" });
  }

  isInSight(card) {
    const [box, room] = [card.node, this.node].map((node) => node.getBoundingClientRect());
    return box.bottom > room.top && box.top < room.bottom;
  }
}

class Card {
  constructor(question, answer) {
    this.question = question;
    const id = `question-${question.approval_id}`;
    const makeButton = (kind, key, label, title = null) =>
      h(
        "button",
        { type: "button", class: `answer-${kind}`, title, onclick: () => answer(kind, this.reason.value) },
        label,
        h("kbd", { "aria-hidden": "true" }, key),
      );
    this.reason = h("input", {
      type: "text",
      class: "reason",
      placeholder: "Why not? (the model is told)",
      "aria-label": "Reason for a denial",
      maxlength: "2000",
      autocomplete: "off",
    });
    this.reason.addEventListener("keydown", (event) => event.key === "Enter" && answer("deny", this.reason.value));
    const always = "The same call with the same arguments is allowed from now on, in this session";
    this.buttons = [
      makeButton("approve", "y", "Allow"),
      makeButton("deny", "n", "Deny"),
      makeButton("always", "a", "Always this session", always),
    ];
    this.node = h(
      "section",
      { class: "approval", tabindex: "-1", role: "group", "aria-labelledby": id, data: { id: question.approval_id } },
      h(
        "header",
        { id },
        icon("alert"),
        h("span", {}, "May it run ", h("code", {}, question.tool_name), "?"),
        makeDeadline(question),
      ),
      question.reason ? h("p", { class: "approval-reason" }, question.reason) : null,
      makePreview(question),
      h("div", { class: "approval-answers" }, this.buttons, this.reason),
    );
  }

  /** Not `disabled`, which would take the focus from a button. */
  setSettled(isSettled) {
    for (const button of this.buttons) button.setAttribute("aria-disabled", String(!isSettled));
  }

  setAnswered(isAnswered) {
    this.isAnswered = isAnswered;
    for (const button of this.buttons) button.disabled = isAnswered;
    this.node.classList.toggle("is-answered", isAnswered);
  }
}

function makeDeadline(question) {
  if (question.deadline === null || question.deadline === undefined) return null;
  const left = Math.max(question.deadline - Date.now() / 1000, 0);
  return h("span", { class: "deadline" }, `denied in ${formatSeconds(left)} without an answer`);
}

/** What the call would do: a diff for edits, else the command or the arguments. */
function makePreview(question) {
  const { tool_name: name, preview } = question;
  // Whole lines: something could hide at the end of a long one.
  if (EDITING.has(name)) return makeDiff(preview, Infinity);
  const pre = h("pre", { class: "preview", tabindex: "0", role: "region", "aria-label": "What it would do" });
  showText(pre, preview, (node, part) => appendColoured(node, part, name === "bash" ? "bash" : "json"));
  return pre;
}
