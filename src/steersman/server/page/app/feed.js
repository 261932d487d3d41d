// The events of a session over one connection that is made again when it breaks. The position of the last event goes
// along, so nothing is missed and nothing comes twice.

import { chooseWait, locate, readProblem, wait } from "./api.js";

const SILENCE = 30_000; // the server sends a sign of life every 10 s

/**
 * `onevents` gets [position, event] pairs. `onstate` gets "live" with the record where the log ended when the
 * connection was made, "waiting", "failed" with the problem, or "done". `last` begins with so many records of the end,
 * `until` ends with a record.
 */
export class Feed {
  constructor(sessionId, { last = null, until = null, onevents, onstate }) {
    this.path = `/sessions/${encodeURIComponent(sessionId)}/events`;
    this.position = null;
    Object.assign(this, { last, until, onevents, onstate });
    this.controller = new AbortController();
  }

  stop() {
    this.controller.abort();
  }

  get isStopped() {
    return this.controller.signal.aborted;
  }

  /** Read until it is stopped, or until the server refuses. */
  async run() {
    let attempt = 0;
    while (!this.isStopped) {
      const connection = new AbortController();
      const stop = () => connection.abort();
      this.controller.signal.addEventListener("abort", stop);
      try {
        const headers = {
          Accept: "text/event-stream",
          ...(this.position === null ? {} : { "Last-Event-ID": this.position }),
        };
        const query = this.position === null && this.last !== null ? `?last=${this.last}` : "";
        const response = await fetch(locate(this.path + query), {
          headers,
          signal: connection.signal,
          cache: "no-store",
        });
        if (!response.ok && response.status < 500) {
          this.onstate("failed", { status: response.status, detail: await readProblem(response) });
          return;
        }
        if (response.ok) {
          attempt = 0;
          this.onstate("live", Number.parseInt(response.headers.get("Steersman-Position"), 10));
          await this.readAll(response.body.getReader(), stop);
        }
      } catch {
        // The network failed, or the server ended: another connection goes on from the position.
      } finally {
        this.controller.signal.removeEventListener("abort", stop);
        connection.abort();
      }
      if (this.isStopped) return;
      this.onstate("waiting");
      await wait(chooseWait(attempt++), this.controller.signal);
    }
  }

  async readAll(reader, stop) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const watchdog = setTimeout(stop, SILENCE);
      const { done, value } = await reader.read();
      clearTimeout(watchdog);
      if (done || this.isStopped) return;
      rest += decoder.decode(value, { stream: true });
      const end = rest.lastIndexOf("\n\n");
      if (end < 0) continue;
      const events = this.parse(rest.slice(0, end));
      rest = rest.slice(end + 2);
      if (events.length > 0) this.onevents(events);
      if (this.until !== null && Number.parseInt(this.position, 10) >= this.until) return this.finish();
    }
  }

  finish() {
    this.stop();
    this.onstate("done");
  }

  parse(text) {
    const events = [];
    for (const frame of text.split("\n\n")) {
      let position = null;
      let data = null;
      for (const line of frame.split("\n")) {
        if (line.startsWith("id: ")) position = line.slice(4);
        else if (line.startsWith("data: ")) data = data === null ? line.slice(6) : `${data}\n${line.slice(6)}`;
      }
      if (data === null || (this.until !== null && Number.parseInt(position, 10) > this.until)) continue;
      events.push([position, JSON.parse(data)]);
      this.position = position ?? this.position;
    }
    return events;
  }
}
