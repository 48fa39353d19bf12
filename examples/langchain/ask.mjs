import { ChatOpenAI } from "@langchain/openai";

const model = new ChatOpenAI({
  model: "gpt-5-mini",
  configuration: {
    baseURL: process.env.REMORA_URL ?? "http://127.0.0.1:8080/v1",
    defaultHeaders: { "X-Session-Id": "langchain" },
  },
});

await model.invoke("My name is Ada.");
console.log((await model.invoke("What is my name?")).content);
// A server of many users names the session with each request.
console.log((await model.invoke("What is my name?", { options: { headers: { "X-Session-Id": "langchain-other" } } })).content);
