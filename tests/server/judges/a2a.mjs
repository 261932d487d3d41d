// Plays one context against a server as a client of A2A does, and prints what the client made of it.
//   node a2a.mjs URL TOKEN STEPS
// STEPS is JSON: a list of {"say": parts}, {"answer": parts}, {"get": true} or {"cancel": true}.
import { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory } from "@a2a-js/sdk/client";

const [url, token, steps] = process.argv.slice(2);
const fetchImpl = (input, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set("Authorization", `Bearer ${token}`);
  return fetch(input, { ...init, headers });
};
const transports = [new JsonRpcTransportFactory({ fetchImpl })];
const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { transports }));
const client = await factory.createFromUrl(url);
const report = [];
let task;

for (const [number, step] of JSON.parse(steps).entries()) {
  const kinds = [];
  let failed = null;
  try {
    if (step.get) {
      task = await client.getTask({ tenant: "", id: task.id });
    } else if (step.cancel) {
      task = await client.cancelTask({ tenant: "", id: task.id, metadata: {} });
    } else {
      const parts = (step.say ?? step.answer).map((part) =>
        part.text === undefined
          ? { content: { $case: "data", value: part.data }, metadata: {}, filename: "", mediaType: "" }
          : { content: { $case: "text", value: part.text }, metadata: {}, filename: "", mediaType: "" },
      );
      const message = {
        messageId: `judged-${number}`, contextId: "judged-context", taskId: step.answer ? task.id : "", role: 1,
        parts, metadata: {}, extensions: [], referenceTaskIds: [],
      };
      for await (const { payload } of client.sendMessageStream({ tenant: "", message, configuration: undefined, metadata: {} })) {
        kinds.push(payload.$case);
        if (payload.$case === "task") task = payload.value;
        if (payload.$case === "statusUpdate") task = { ...task, status: payload.value.status };
      }
    }
  } catch (error) {
    failed = String(error.message ?? error);
  }
  report.push({ kinds, failed, state: task?.status?.state, artifacts: task?.artifacts?.length });
}
console.log(JSON.stringify({ report }));
