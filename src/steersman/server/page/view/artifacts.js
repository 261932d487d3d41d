// The files that the current branch of a session keeps, each with a link that downloads it.

import { locate, read } from "../app/api.js";
import { formatBytes } from "../app/format.js";
import { h, replace } from "./dom.js";

export class ArtifactList {
  constructor(node, report) {
    Object.assign(this, { node, report, list: node.querySelector("ul"), session: null, shown: "", isReading: false });
  }

  setSession(session) {
    this.session = session;
    this.shown = "";
    this.node.hidden = true;
  }

  /** Read the list again if something was saved, or the session was moved to another branch. */
  update() {
    const { session } = this;
    if (session === null || session.log.saves === 0 || this.isReading) return;
    const state = `${session.log.saves} ${session.log.moves}`;
    if (state !== this.shown) void this.read(session, state);
  }

  async read(session, state) {
    this.isReading = true;
    this.shown = state;
    try {
      const { artifacts } = await read(`${session.path}/artifacts`);
      if (this.session === session) this.draw(session, artifacts);
    } catch (error) {
      if (this.session === session) this.report(error);
    } finally {
      this.isReading = false;
    }
    if (this.session !== session || `${session.log.saves} ${session.log.moves}` !== state) this.update();
  }

  draw(session, artifacts) {
    this.node.hidden = artifacts.length === 0;
    replace(
      this.list,
      artifacts.map((one) => {
        const older = one.versions.filter((version) => version !== one.version).reverse();
        return h(
          "li",
          {},
          h("bdi", {}, makeLink(session, one, one.version, one.name)),
          h("span", { class: "muted" }, `${formatBytes(one.size)} · version ${one.version}`),
          older.length > 0 &&
            h(
              "span",
              { class: "muted" },
              "earlier: ",
              older.slice(0, 5).map((version) => [makeLink(session, one, version, String(version)), " "]),
            ),
        );
      }),
    );
  }
}

function makeLink(session, { name }, version, text) {
  const href = locate(`${session.path}/artifacts/${encodeURIComponent(name)}?version=${version}`);
  const label = text === name ? undefined : `${name}, version ${version}`;
  return h("a", { href, download: name, "aria-label": label }, text);
}
