import { Agent, OpenAIProvider, Runner, setTracingDisabled } from "@openai/agents";
import OpenAI from "openai";

setTracingDisabled(true); // traces go to OpenAI, past the base URL
const agent = new Agent({ name: "Helper", model: "gpt-5-mini" });
// A server of many users makes a runner with each request's session.
const runner = (session) =>
  new Runner({
    modelProvider: new OpenAIProvider({
      openAIClient: new OpenAI({
        baseURL: process.env.REMORA_URL ?? "http://127.0.0.1:8080/v1",
        defaultHeaders: { "X-Session-Id": session },
      }),
    }),
  });

await runner("agents-sdk").run(agent, "My name is Ada.");
console.log((await runner("agents-sdk").run(agent, "What is my name?")).finalOutput);
console.log((await runner("agents-sdk-other").run(agent, "What is my name?")).finalOutput);
