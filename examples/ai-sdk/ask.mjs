import { createOpenAI } from "@ai-sdk/openai";
import { generateText } from "ai";

const openai = createOpenAI({
  baseURL: process.env.REMORA_URL ?? "http://127.0.0.1:8080/v1",
  headers: { "X-Session-Id": "ai-sdk" },
});
const ask = async (prompt, headers) => (await generateText({ model: openai("gpt-5-mini"), prompt, headers })).text;

await ask("My name is Ada.");
console.log(await ask("What is my name?"));
// A server of many users names the session with each request.
console.log(await ask("What is my name?", { "X-Session-Id": "ai-sdk-other" }));
