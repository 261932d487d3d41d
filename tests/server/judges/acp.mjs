// Drives an agent with the JavaScript SDK: node acp.mjs FOLDER COMMAND ARGS... Prints what it saw as JSON.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk/unstable";

const [cwd, command, ...args] = process.argv.slice(2);
let child;
const start = () => {
  child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  return acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
};
const seen = { updates: [], questions: 0, reasons: {} };
let choose = () => ({ outcome: { outcome: "selected", optionId: "allow_once" } });
let changed = () => {};

const app = acp
  .client({ name: "judge" })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    seen.questions += 1;
    changed();
    return choose(params);
  })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    seen.updates.push(params.update);
    changed();
  });

const waitUntil = (fits) =>
  new Promise((resolve) => {
    changed = () => fits() && resolve();
    changed();
  });

let killed;
await app.connectWith(start(), async (agent) => {
  const { session } = acp.methods.agent;
  const first = await agent.request(acp.methods.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
  seen.capabilities = first.agentCapabilities;
  const { sessionId } = await agent.request(session.new, { cwd, mcpServers: [] });
  const say = async (text) => {
    const { stopReason } = await agent.request(session.prompt, { sessionId, prompt: [{ type: "text", text }] });
    return stopReason;
  };
  seen.reasons.think = await say("think");
  seen.reasons.yes = await say("deploy");
  choose = () => ({ outcome: { outcome: "selected", optionId: "reject_once" } });
  seen.reasons.no = await say("deploy");
  choose = () => { throw acp.RequestError.methodNotFound("session/request_permission"); };
  seen.reasons.unable = await say("deploy");
  seen.error = await say("fail").then(() => null, (error) => ({ code: error.code, message: error.message }));
  const count = seen.updates.length;
  const slow = say("slow");
  await waitUntil(() => seen.updates.length > count);
  await agent.notify(session.cancel, { sessionId });
  seen.reasons.cancel = await slow;
  const before = seen.updates.length;
  await agent.request(session.load, { sessionId, cwd, mcpServers: [] });
  seen.replayed = seen.updates.slice(before).filter((one) => one.sessionUpdate === "user_message_chunk").map((one) => one.content.text);
  await agent.request(session.resume, { sessionId, cwd, mcpServers: [] });
  const fork = await agent.request(session.fork, { sessionId, cwd, mcpServers: [] });
  const { sessions } = await agent.request(session.list, { cwd });
  seen.listed = sessions.map((one) => one.sessionId).sort();
  seen.expected = [sessionId, fork.sessionId].sort();
  await agent.request(session.setMode, { sessionId, modeId: "plan" });
  seen.reasons.last = await say("hello");
  await agent.request(session.close, { sessionId });
});
child.kill();

// A question that is open when the process is killed.
await app.connectWith(start(), async (agent) => {
  const { session } = acp.methods.agent;
  const asked = seen.questions;
  choose = () => new Promise(() => {});
  await agent.request(acp.methods.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
  killed = (await agent.request(session.new, { cwd, mcpServers: [] })).sessionId;
  const lost = agent.request(session.prompt, { sessionId: killed, prompt: [{ type: "text", text: "deploy" }] });
  await waitUntil(() => seen.questions > asked);
  child.kill("SIGKILL");
  await lost;
}).catch((error) => { seen.lost = error.message; });
const before = seen.updates.length;
choose = () => ({ outcome: { outcome: "selected", optionId: "allow_once" } });
const saysDone = () =>
  seen.updates.slice(before).filter((one) => one.sessionUpdate === "agent_message_chunk").map((one) => one.content.text).join("").endsWith("Done.");
await app.connectWith(start(), async (agent) => {
  await agent.request(acp.methods.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
  await agent.request(acp.methods.agent.session.load, { sessionId: killed, cwd, mcpServers: [] });
  await waitUntil(saysDone);
  seen.reopened = seen.updates.slice(before);
});
console.log(JSON.stringify(seen));
child.kill();
process.exit(0);
