// Plays steps against a server as a client of OpenAI's APIs does, and prints what the client made of them.
//   node openai.mjs URL TOKEN STEPS
// STEPS is JSON: a list of {"responses": body} or {"chat": body}; "previous": true names the response before.
import OpenAI from "openai";

const [url, token, steps] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: token, maxRetries: 0 });
const report = [];
let previous;

for (const step of JSON.parse(steps)) {
  const types = [];
  let final = null;
  let failed = null;
  try {
    if (step.responses) {
      const body = { ...step.responses, ...(step.previous ? { previous_response_id: previous } : {}) };
      const stream = client.responses.stream(body);
      for await (const event of stream) types.push(event.type);
      final = await stream.finalResponse();
      previous = final.id;
    } else {
      const runner = client.chat.completions.stream(step.chat);
      for await (const chunk of runner) types.push(chunk.choices[0]?.finish_reason ?? "chunk");
      final = await runner.finalChatCompletion();
    }
  } catch (error) {
    failed = String(error.message ?? error);
  }
  report.push({ types, final, failed });
}
const models = [];
for await (const model of client.models.list()) models.push(model.id);
console.log(JSON.stringify({ report, models }));
