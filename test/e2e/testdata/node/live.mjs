// Upstream stalls after some events and goes on when this client says that it has seen them: if anything on the way
// held events back, these would wait for ever.
import { streamText } from 'ai';

const text = 'SAY one two three four five six seven eight nine ten eleven twelve';
const release = (x) => fetch(x.control, { method: 'POST' });

async function listen(x, stream, after) {
  let n = 0;
  for await (const _ of await stream) {
    if (++n === after) await release(x);
  }
  return n;
}

export const chat = (x) =>
  listen(x, x.openai({ faults: 'stall-after=2' }).chat.completions.create({
    model: 'gpt-4.1', messages: [{ role: 'user', content: text }], stream: true,
  }), 2);

export const responses = (x) =>
  listen(x, x.openai({ faults: 'stall-after=5' }).responses.create({ model: 'gpt-5', input: text, stream: true }), 5);

export const aisdk = (x) =>
  listen(x, streamText({ model: x.aiOpenAI({ faults: 'stall-after=2' }).chat('gpt-4.1'), prompt: text, maxRetries: 0 }).textStream, 1);
