// The Responses API through the official SDK.
import { collect, result } from './context.mjs';

const model = 'gpt-5';
const tools = ['lookup', 'weather', 'step'].map((name) => ({
  type: 'function', name, description: `tool ${name}`, strict: false,
  parameters: { type: 'object', properties: { q: { type: 'string' }, city: { type: 'string' }, i: { type: 'integer' } } },
}));
tools.push({ type: 'custom', name: 'shell', description: 'free text' });

function answers(output) {
  return output.filter((item) => item.call_id).map((item) => ({
    type: `${item.type}_output`, call_id: item.call_id, output: result(item.name, item.arguments ?? item.input),
  }));
}

async function respond(client, body, withStream) {
  if (!withStream) return client.responses.create(body);
  return client.responses.stream({ ...body, stream: true }).finalResponse();
}

// replay resends everything each time, as agents with store:false do.
async function replay(client, body, withStream) {
  const input = [...body.input];
  const turns = [];
  for (;;) {
    const whole = await respond(client, { ...body, input }, withStream);
    turns.push(whole);
    input.push(...whole.output);
    const results = answers(whole.output);
    if (!results.length) return turns;
    input.push(...results);
  }
}

export const plain = (x) =>
  x.openai().responses.create({
    model, instructions: 'Be terse.', input: 'Hello <there> ✓', metadata: { z: '1', a: '2' }, x_unknown: [1.0, { b: 1, a: 2 }],
  });

export const stream = (x) =>
  collect(x.openai().responses.create({ model, input: 'SAY one two three four five six seven', stream: true }));

export const events = (x) =>
  collect(x.openai().responses.create({
    model, tools, stream: true,
    input: [{ role: 'user', content: 'REASON thinking hard ;; SAY I look ;; CALL lookup {"q":"1"} | weather {"city":"Bern"} ;; SAY end' }],
  }));

export const refusal = (x) => x.openai().responses.create({ model, input: 'REFUSE no, I will not' });

const script = 'REASON think first ;; CALL lookup {"q":"a"} | weather {"city":"Genève"} | shell {ls} ;; REASON think again ;; SAY found';

export const fullReplay = (x) =>
  replay(x.openai(), { model, tools, store: false, include: ['reasoning.encrypted_content'], input: [{ role: 'user', content: script }] });

export const fullReplayStream = (x) =>
  replay(x.openai(), { model, tools, store: false, include: ['reasoning.encrypted_content'], input: [{ role: 'user', content: script }] }, true);

export const loop100 = (x) =>
  replay(x.openai(), { model, tools, store: false, input: [{ role: 'developer', content: 'loop' }, { role: 'user', content: 'LOOP 100 step {"i":{{i}}} ;; SAY finished' }] });

// Delta clients: upstream keeps the history.
export async function previousResponse(x) {
  const client = x.openai();
  const turns = [await client.responses.create({ model, tools, input: `${script}` })];
  for (;;) {
    const last = turns.at(-1);
    const results = answers(last.output);
    if (!results.length) break;
    turns.push(await client.responses.create({ model, tools, previous_response_id: last.id, input: results }));
  }
  turns.push(await client.responses.create({ model, previous_response_id: turns.at(-1).id, input: 'SEE' }));
  return turns;
}

export async function conversation(x) {
  const client = x.openai();
  const conv = await client.conversations.create({ metadata: { topic: 'e2e' } });
  const turns = [await client.responses.create({ model, tools, conversation: conv.id, input: script })];
  for (;;) {
    const results = answers(turns.at(-1).output);
    if (!results.length) break;
    turns.push(await respond(client, { model, tools, conversation: conv.id, input: results }, true));
  }
  turns.push(await client.responses.create({ model, conversation: conv.id, input: 'SEE' }));
  const items = await client.conversations.items.list(conv.id, { order: 'asc' });
  return { conv, turns, items: items.data, gone: await client.conversations.delete(conv.id) };
}

export async function stored(x) {
  const client = x.openai();
  const first = await client.responses.create({ model, input: 'SAY keep this' });
  const again = await client.responses.retrieve(first.id);
  const input = await client.responses.inputItems.list(first.id);
  const deleted = await client.responses.delete(first.id);
  return { first, again, input: input.data, deleted, gone: await x.outcome(client.responses.retrieve(first.id)) };
}
