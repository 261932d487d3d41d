// Numbers, times and texts as people read them.

const DAY = 86_400;

/** 1,234 as "1.2k". */
export function formatTokens(count) {
  if (count < 1_000) return String(count);
  if (count < 1_000_000) return `${(count / 1_000).toFixed(count < 10_000 ? 1 : 0)}k`;
  return `${(count / 1_000_000).toFixed(2)}M`;
}

/** Dollars with as many digits as matter. */
export function formatCost(dollars) {
  if (dollars === 0) return "$0";
  return dollars < 0.01 ? `$${dollars.toPrecision(2)}` : `$${dollars.toFixed(dollars < 1 ? 3 : 2)}`;
}

/** Bytes as "340 B", "1.2 KB" or "3.4 MB". */
export function formatBytes(count) {
  if (count < 1_000) return `${count} B`;
  if (count < 1_000_000) return `${(count / 1_000).toFixed(1)} KB`;
  return `${(count / 1_000_000).toFixed(1)} MB`;
}

/** Seconds as "0.4 s", "12 s" or "3 min 5 s". */
export function formatSeconds(seconds) {
  if (seconds < 0.095) return `${Math.max(Math.round(seconds * 1000), 0)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes} min ${Math.round(seconds % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A time as "14:05", "Tue 14:05" or "3 Mar". */
export function formatTime(seconds, now = Date.now() / 1000) {
  const date = new Date(seconds * 1000);
  const clock = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (now - seconds < 60) return "now";
  if (new Date(now * 1000).toDateString() === date.toDateString()) return clock;
  if (now - seconds < 6 * DAY) return `${date.toLocaleDateString([], { weekday: "short" })} ${clock}`;
  return date.toLocaleDateString([], { day: "numeric", month: "short" });
}

/** The texts of a message, joined. */
export function getText(message) {
  const content = message?.content ?? [];
  return typeof content === "string"
    ? content
    : content
        .filter((block) => block.type === "text")
        .map((block) => block.text)
        .join("\n\n");
}

/** The beginning of a text in one line. */
export function shorten(text, most = 80) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length <= most ? line : `${line.slice(0, most - 1)}…`;
}
