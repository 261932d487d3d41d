// Plays one thread against a server as a client of AG-UI does, and prints what the client made of it.
//   node agui.mjs URL TOKEN STEPS
// STEPS is JSON: a list of {"say": text}, {"resume": [...]} or {"connect": true}.
import { HttpAgent } from "@ag-ui/client";

const [url, token, steps] = process.argv.slice(2);
const agent = new HttpAgent({ url, threadId: "judged-thread", headers: { Authorization: `Bearer ${token}` } });
const report = [];
let interrupts = [];

for (const [number, step] of JSON.parse(steps).entries()) {
  const types = [];
  if (step.say !== undefined) agent.addMessage({ id: `message-${number}`, role: "user", content: step.say });
  const resume = step.resume?.map((entry, at) => ({ interruptId: interrupts[at]?.id, ...entry }));
  let failed = null;
  try {
    await agent.runAgent({ runId: `run-${number}`, resume }, {
      onEvent({ event }) {
        types.push(event.type);
        if (event.type === "RUN_FINISHED") interrupts = event.outcome?.interrupts ?? [];
      },
    });
  } catch (error) {
    failed = String(error.message ?? error);
  }
  report.push({ types, failed, interrupts: interrupts.map(({ toolCallId, message }) => ({ toolCallId, message })) });
}
console.log(JSON.stringify({ report, messages: agent.messages }));
