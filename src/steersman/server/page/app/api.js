// Requests to the server. Each that acts has a key, and is sent again with the same key after a network failure.

/** Waits are this part of what is usual; a test that waits for a reconnect makes it small. */
export const PACE = Number(sessionStorage.getItem("steersman.pace")) || 1;

const FIRST_WAIT = 300 * PACE;
const LONGEST_WAIT = 5_000 * PACE;
const GIVE_UP_AFTER = 120_000;
const BUSY = new Set([502, 503, 504]);

/** An answer of the server that is an error; `status` is 0 if there was no answer. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** The address of a path of the API; the server may be mounted below another path. */
export function locate(path) {
  return new URL(path.replace(/^\//, ""), document.baseURI).href;
}

/** Read something. */
export async function read(path, { signal } = {}) {
  return parse(await send(path, { signal }));
}

/** Act: send a body with a key, and again with the same key until the server has answered. */
export async function act(path, body = {}, { method = "POST", key = makeKey(), onretry = () => {} } = {}) {
  const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
  const since = performance.now();
  for (let attempt = 0; ; attempt++) {
    try {
      const response = await send(path, {
        method,
        headers,
        body: method === "DELETE" ? undefined : JSON.stringify(body),
      });
      return await parse(response);
    } catch (error) {
      const again = error instanceof ApiError && (error.status === 0 || BUSY.has(error.status));
      if (!again || performance.now() - since > GIVE_UP_AFTER) throw error;
      onretry(error);
      await wait(chooseWait(attempt));
    }
  }
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(locate(path), { ...options, redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (response.ok) return response;
  throw new ApiError(response.status, await readProblem(response));
}

async function parse(response) {
  if (response.status === 204) return null;
  try {
    return await response.json();
  } catch {
    throw new ApiError(0, "The answer of the server broke off."); // the connection ended in the middle
  }
}

/** What a response with an error says. */
export async function readProblem(response) {
  try {
    const problem = await response.json();
    return problem.detail || problem.title || `The server answered ${response.status}.`;
  } catch {
    return `The server answered ${response.status}.`;
  }
}

/** A new idempotency key. */
export function makeKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Milliseconds to wait before an attempt: longer each time, and not the same for all tabs. */
export function chooseWait(attempt) {
  return Math.min(FIRST_WAIT * 2 ** attempt, LONGEST_WAIT) * (0.75 + Math.random() / 2);
}

/** Wait some milliseconds; returns early when the network comes back or the page is looked at again. */
export function wait(milliseconds, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    addEventListener("online", end);
    signal?.addEventListener("abort", end);
  });
}
