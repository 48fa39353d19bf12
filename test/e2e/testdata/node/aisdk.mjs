// The Vercel AI SDK: its own wire habits (item references, calls without ids), its own tool loop.
import { embedMany, generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';
import { describe, result } from './context.mjs';

const tools = {
  lookup: tool({ description: 'look up', inputSchema: z.object({ q: z.string() }), execute: async (a) => result('lookup', a) }),
  step: tool({ description: 'one step', inputSchema: z.object({ i: z.number() }), execute: async (a) => result('step', a) }),
};
const script = 'REASON think first ;; SAY I look ;; CALL lookup {"q":"a"} | lookup {"q":"b"} ;; SAY found both';
const loopScript = 'LOOP 100 step {"i":{{i}}} ;; SAY finished';

// stable leaves out what the SDK makes up itself: random ids, clocks, and the request and answer in HTTP's terms, which
// the tries have.
const volatile = new Set([
  'timestamp', 'headers', 'request', 'messageId', 'callId', 'stepTimeMs', 'responseTimeMs', 'toolExecutionMs', 'performance', 'body',
]);
function stable(value) {
  return JSON.parse(JSON.stringify(value, (k, v) => {
    if (volatile.has(k)) return undefined;
    if (v instanceof Error) return describe(v);
    return typeof v === 'string' && /^aitxt-\w{24}$/.test(v) ? 'aitxt-random' : v;
  }));
}

function summary(r) {
  return stable({
    text: r.text, reasoning: r.reasoningText, finish: r.finishReason, usage: r.usage, total: r.totalUsage,
    messages: r.responseMessages ?? r.response.messages,
    steps: r.steps.map((s) => ({
      text: s.text, reasoning: s.reasoning, finish: s.finishReason, usage: s.usage, calls: s.toolCalls, results: s.toolResults, response: s.response.id,
    })),
  });
}

async function generate(model, prompt) {
  return summary(await generateText({ model, tools, prompt, stopWhen: isStepCount(110), maxRetries: 0 }));
}

async function stream(model, prompt) {
  const parts = [];
  const r = streamText({ model, tools, prompt, stopWhen: isStepCount(110), maxRetries: 0, onError: () => {} });
  for await (const part of r.fullStream ?? r.stream) parts.push(stable(part));
  return { parts, text: await r.text, finish: await r.finishReason, usage: stable(await r.totalUsage ?? await r.usage) };
}

export const chatGenerate = (x) => generate(x.aiOpenAI().chat('gpt-4.1'), script);
export const chatStream = (x) => stream(x.aiOpenAI().chat('gpt-4.1'), script);
export const responsesGenerate = (x) => generate(x.aiOpenAI().responses('gpt-5'), script);
export const responsesStream = (x) => stream(x.aiOpenAI().responses('gpt-5'), script);
export const compatibleGenerate = (x) => generate(x.aiCompatible()('some-model'), script);
export const compatibleStream = (x) => stream(x.aiCompatible()('some-model'), script);
export const chatLoop100 = (x) => generate(x.aiOpenAI().chat('gpt-4.1'), loopScript);
export const responsesLoop100 = (x) => stream(x.aiOpenAI().responses('gpt-5'), loopScript);
// With the default store every reasoning item is resent as an item_reference.
export const responsesReasoning30 = (x) => stream(x.aiOpenAI().responses('gpt-5'), 'REASON thought {{i}} ;; LOOP 30 step {"i":{{i}}} ;; SAY finished');

// A second question in the same conversation, with what the SDK keeps of the first answer.
async function followUp(model) {
  const messages = [{ role: 'user', content: script }];
  const first = await generateText({ model, tools, messages, stopWhen: isStepCount(5), maxRetries: 0 });
  messages.push(...(first.responseMessages ?? first.response.messages), { role: 'user', content: 'SEE' });
  return [summary(first), await summary(await generateText({ model, tools, messages, maxRetries: 0 }))];
}
export const chatFollowUp = (x) => followUp(x.aiOpenAI().chat('gpt-4.1'));
export const responsesFollowUp = (x) => followUp(x.aiOpenAI().responses('gpt-5'));

export const embed = async (x) => {
  const { embeddings, usage } = await embedMany({ model: x.aiOpenAI().embedding('text-embedding-3-small'), values: ['a', 'b'] });
  return { embeddings, usage };
};

export const retries = (x) =>
  x.outcome(generateText({ model: x.aiOpenAI({ faults: 'status=503;retry-after=0.01' }).chat('gpt-4.1'), prompt: 'SAY x', maxRetries: 1 }));
export const streamError = (x) => stream(x.aiOpenAI({ faults: 'error-in-stream' }).chat('gpt-4.1'), 'SAY never to be said in full, it breaks');
