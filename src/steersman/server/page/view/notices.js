// What the page says about itself: errors as short notices, the state of the connection, words for screen readers.

import { h, icon, iconButton, setText } from "./dom.js";

const SHOWN_FOR = 9_000;

export class Notices {
  constructor(page) {
    this.list = page.querySelector("#notices");
    this.banner = page.querySelector("#banner");
    this.spoken = page.querySelector("#spoken");
  }

  /** Show an error of the server, or a mistake of this page. */
  report(error) {
    const text = error?.message || String(error);
    const notice = h(
      "div",
      { class: "notice", role: "alert" },
      icon("alert"),
      h("span", {}, text),
      iconButton("cross", "Close", () => notice.remove()),
    );
    this.list.append(notice);
    while (this.list.children.length > 3) this.list.firstChild.remove();
    setTimeout(() => notice.remove(), SHOWN_FOR);
  }

  /** Say the state of the connection; an empty text hides the banner. */
  setBanner(text, kind = "warning") {
    this.banner.hidden = text === "";
    this.banner.dataset.kind = kind;
    setText(this.banner.querySelector("span"), text);
  }

  /** Say something to a screen reader. */
  speak(text) {
    setText(this.spoken, text);
  }
}
