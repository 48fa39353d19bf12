// Chat Completions through the official SDK.
import { collect, result } from './context.mjs';

const model = 'gpt-4.1';
const user = (content) => ({ role: 'user', content });

const functions = ['lookup', 'weather', 'step'].map((name) => ({
  type: 'function',
  function: {
    name,
    description: `tool ${name}`,
    parameters: { type: 'object', properties: { q: { type: 'string' }, city: { type: 'string' }, i: { type: 'integer' } } },
  },
}));
const tools = [...functions, { type: 'custom', custom: { name: 'shell', description: 'free text' } }];

function answers(message) {
  return message.tool_calls.map((call) => ({
    role: 'tool',
    tool_call_id: call.id,
    content: result((call.function ?? call.custom).name, call.function ? call.function.arguments : call.custom.input),
  }));
}

// loop plays an agent: it calls the model until that calls no more tools.
async function loop(client, body, withStream) {
  const messages = [...body.messages];
  const turns = [];
  for (;;) {
    let message;
    if (withStream) {
      const stream = client.chat.completions.stream({ ...body, messages, stream: true, stream_options: { include_usage: true } });
      const whole = await stream.finalChatCompletion();
      turns.push(whole);
      message = whole.choices[0].message;
    } else {
      const whole = await client.chat.completions.create({ ...body, messages });
      turns.push(whole);
      message = whole.choices[0].message;
    }
    messages.push(message);
    if (!message.tool_calls?.length) return { turns, messages };
    messages.push(...answers(message));
  }
}

export const plain = (x) =>
  x.openai().chat.completions.create({
    model,
    messages: [{ role: 'system', content: 'You are terse. Ünïcödé ✓ \u2028' }, user('Hello there, "friend" <&>')],
    temperature: 0.30000000000000004,
    seed: 9007199254740991,
    metadata: { b: '2', a: '1' },
    x_unknown: { z: [1, 2.0, null], a: 'kept' },
  });

export async function turns(x) {
  const client = x.openai();
  const messages = [{ role: 'developer', content: 'Be brief.' }];
  const seen = [];
  for (const text of ['SAY first', 'SAY second', 'SEE']) {
    messages.push(user(text));
    const whole = await client.chat.completions.create({ model, messages });
    messages.push(whole.choices[0].message);
    seen.push(whole);
  }
  return seen;
}

export const parts = (x) =>
  x.openai().chat.completions.create({
    model,
    messages: [user([
      { type: 'text', text: 'What is in this picture?' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
    ])],
  });

export const stream = (x) =>
  collect(x.openai().chat.completions.create({
    model, messages: [user('SAY one two three four five six seven eight nine ten')],
    stream: true, stream_options: { include_usage: true },
  }));

export const streamBare = (x) =>
  collect(x.openai().chat.completions.create({ model, messages: [user('SAY no usage asked for, so none comes')], stream: true }));

// The SDK's own event helper, on the raw bytes that a browser would see.
export async function rawStream(x) {
  const response = await x.openai().chat.completions
    .create({ model, messages: [user('SAY raw bytes as they came')], stream: true }).asResponse();
  return response.text();
}

export const choices = (x) => x.openai().chat.completions.create({ model, n: 2, messages: [user('SAY pick one')] });

export const choicesStream = (x) =>
  collect(x.openai().chat.completions.create({
    model, n: 3, messages: [user('SAY pick one of three')], stream: true, stream_options: { include_usage: true },
  }));

const parallelScript = 'SAY looking ;; CALL lookup {"q":"a | b ;; c"} | weather {"city":"Zürich"} | lookup {"q":"a"} | shell {ls -l} ;; SAY found all four';

export const parallel = (x) => loop(x.openai(), { model, tools, messages: [user(parallelScript)] });

export const parallelStream = (x) => loop(x.openai(), { model, tools, messages: [user(parallelScript)] }, true);

export const parallelDeltas = (x) =>
  collect(x.openai().chat.completions.create({ model, tools, messages: [user(parallelScript)], stream: true }));

export const refusal = (x) => x.openai().chat.completions.create({ model, messages: [user('REFUSE I will not do that')] });

export const refusalStream = (x) =>
  collect(x.openai().chat.completions.create({ model, messages: [user('REFUSE I will not do that either, sorry')], stream: true }));

// reasoning_content has to come back with the tool results, as some vendors demand.
export const reasoning = (x) =>
  loop(x.openai(), { model, tools, messages: [user('REASON let me think about it ;; CALL lookup {"q":"x"} ;; REASON now I know ;; SAY it is x')] });

export const loop100 = (x) =>
  loop(x.openai(), { model, tools, messages: [{ role: 'system', content: 'loop' }, user('LOOP 100 step {"i":{{i}}} ;; SAY finished')] });

// The SDK's own tool runner, streaming.
export async function runTools(x) {
  const events = [];
  const runner = x.openai().chat.completions.runTools(
    {
      model,
      stream: true,
      messages: [user('LOOP 100 step {"i":{{i}}} ;; SAY finished')],
      tools: [{
        type: 'function',
        function: { name: 'step', parse: JSON.parse, function: (args) => result('step', args), parameters: { type: 'object', properties: {} }, description: 'one step' },
      }],
    },
    { maxChatCompletions: 110 },
  );
  for (const name of ['content', 'functionToolCall', 'functionToolCallResult', 'finalContent']) {
    runner.on(name, (value) => events.push([name, value]));
  }
  return { text: await runner.finalContent(), usage: await runner.totalUsage(), messages: runner.messages, events };
}

// Regenerating and editing: histories that are no continuation of what was said last.
export async function branches(x) {
  const client = x.openai();
  const ask = async (messages) => (await client.chat.completions.create({ model, messages })).choices[0].message;
  const start = [user('SAY a')];
  const first = await ask(start);
  const again = await ask(start);
  const second = await ask([...start, first, user('SAY b')]);
  const edited = await ask([...start, first, user('SAY b, edited')]);
  return { first, again, second, edited, last: await ask([...start, first, user('SAY b'), second, user('SEE')]) };
}
