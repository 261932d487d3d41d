// Calls an agent with the JavaScript SDK: node mcp.mjs URL, or node mcp.mjs COMMAND ARGS... Prints what it saw as JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const [target, ...args] = process.argv.slice(2);
const connect = async (capabilities) => {
  const client = new Client({ name: "judge", version: "0" }, { capabilities });
  const transport = target.startsWith("http")
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args, env: process.env, stderr: "inherit" });
  await client.connect(transport);
  return client;
};
const say = (client, prompt, options) => client.callTool({ name: "run", arguments: { prompt } }, undefined, options);
const read = (result) => result.content.map((block) => block.text).join("");

const seen = { progress: [], asked: 0 };
const client = await connect({ elicitation: {} });
let approved = true;
client.setRequestHandler(ElicitRequestSchema, () => {
  seen.asked += 1;
  return { action: "accept", content: { approved } };
});
await client.ping();
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
// The client drops a notification that it reads together with the answer, so the answer waits until all have come.
let opening;
const onprogress = ({ message = "" }) => {
  seen.progress.push(message);
  if (message === "[wait]") opening = say(client, "open");
};
seen.text = read(await say(client, "tell", { onprogress }));
await opening;
seen.yes = read(await say(client, "deploy"));
approved = false;
seen.no = read(await say(client, "deploy"));
seen.failed = (await say(client, "fail")).isError;
seen.unknown = await client.callTool({ name: "nothing", arguments: {} }).then(() => null, (error) => error.code);
const stop = new AbortController();
const slow = say(client, "slow", { signal: stop.signal, onprogress: () => stop.abort("enough") });
seen.cancelled = await slow.then(() => false, () => true);
seen.after = read(await say(client, "hello"));
await client.close();
const mute = await connect({});
seen.mute = read(await say(mute, "deploy"));
await mute.close();
console.log(JSON.stringify(seen));
process.exit(0);
