// Keys that work everywhere, the buttons that open and close the panels, and the dialog that lists the keys.

/** Set up the keys of the page. */
export function setUpKeys(page) {
  const find = (id) => document.querySelector(`#${id}`);
  const { classList } = document.body;
  const toggle = (name, button) => {
    const shown = classList.toggle(name);
    button.setAttribute("aria-expanded", String(shown));
    page.schedule();
  };
  find("open-sidebar").addEventListener("click", (event) => toggle("shows-sidebar", event.currentTarget));
  find("open-inspector").addEventListener("click", (event) => toggle("shows-inspector", event.currentTarget));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part after # names a session here
    find("text").focus();
  });
  find("scrim").addEventListener("click", closePanels);
  find("show-keys").addEventListener("click", () => find("keys").showModal());
  find("new").addEventListener("click", () => {
    location.hash = "#/";
    find("text").focus();
  });

  function closePanels() {
    classList.remove("shows-sidebar", "shows-inspector");
    for (const id of ["open-sidebar", "open-inspector"]) find(id).setAttribute("aria-expanded", "false");
  }

  const commands = {
    "ctrl+k": () => (classList.add("shows-sidebar"), find("search").focus()),
    "ctrl+.": () => page.session?.log.running && page.session.stop().catch(page.report),
    "alt+n": () => find("new").click(),
    "alt+i": () => find("open-inspector").click(),
    escape: closePanels,
    "?": () => find("keys").showModal(),
    "/": () => find("text").focus(),
  };

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, dialog");
    const modifier = event.ctrlKey || event.metaKey ? "ctrl+" : event.altKey ? "alt+" : "";
    if (typing !== null && modifier === "" && event.key !== "Escape") return;
    const command = commands[modifier + event.key.toLowerCase()];
    if (command === undefined || event.defaultPrevented) return;
    if (event.key !== "Escape") event.preventDefault();
    command();
  });
}
