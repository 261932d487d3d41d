// Light, dark, or as the system has it. The choice stays in this browser.

import { icon, replace } from "./dom.js";

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const NAMES = { auto: ["auto", "as the system"], light: ["sun", "light"], dark: ["moon", "dark"] };
const KEY = "steersman.theme";

/** Set up the button that switches the colours. */
export function setUpTheme(button) {
  let theme = localStorage.getItem(KEY);
  if (!(theme in NEXT)) theme = "auto";
  const apply = () => {
    document.documentElement.dataset.theme = theme;
    const [name, words] = NAMES[theme];
    button.title = `Colours: ${words}`;
    button.setAttribute("aria-label", `Colours: ${words}. Change`);
    replace(button, icon(name));
  };
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem(KEY, theme);
    apply();
  });
  apply();
}
