import OpenAI from "openai";

const client = new OpenAI({
  baseURL: process.env.REMORA_URL ?? "http://127.0.0.1:8080/v1",
  defaultHeaders: { "X-Session-Id": "node" },
});
const ask = async (input, options) => (await client.responses.create({ model: "gpt-5-mini", input }, options)).output_text;

await ask("My name is Ada.");
console.log(await ask("What is my name?"));
// A server of many users names the session with each request.
console.log(await ask("What is my name?", { headers: { "X-Session-Id": "node-other" } }));
