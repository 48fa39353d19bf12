import { createOpenAI } from "@ai-sdk/openai";
import { Agent } from "@mastra/core/agent";

const agent = (session) =>
  new Agent({
    id: "helper",
    name: "Helper",
    instructions: "You are brief.",
    // A server of many users makes the model with each request's session.
    model: createOpenAI({
      baseURL: process.env.REMORA_URL ?? "http://127.0.0.1:8080/v1",
      headers: { "X-Session-Id": session },
    })("gpt-5-mini"),
  });

await agent("mastra").generate("My name is Ada.");
console.log((await agent("mastra").generate("What is my name?")).text);
console.log((await agent("mastra-other").generate("What is my name?")).text);
