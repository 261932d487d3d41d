// Characters that people cannot see, or that reorder what they see, are shown by their numbers.

// C0 and C1 controls except tab and newline, bidi controls, zero-width characters, line separators, tags.
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** The text with its invisible characters written as ⟨U+202E⟩. */
export function showInvisible(text) {
  return text.replace(INVISIBLE, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}
