// Pictures that came as data in a message. Nothing is loaded for them, and only formats without scripts are shown.

import { h } from "./dom.js";

const FORMATS = /^image\/(png|jpeg|gif|webp)$/;
const BASE64 = /^[A-Za-z0-9+/=\s]*$/;

/** The picture of a block; the name of its type where it is none. */
export function makePicture(block) {
  const isPicture = block.type === "image" && FORMATS.test(block.mime_type ?? "") && BASE64.test(block.data);
  if (!isPicture) return h("p", { class: "plain muted" }, `(${block.type})`);
  return h("img", {
    class: "picture",
    alt: "A picture in this message",
    src: `data:${block.mime_type};base64,${block.data}`,
  });
}
