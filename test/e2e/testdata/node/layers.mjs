// The model keeps notes with a tool that is not the client's: in the middle of the client's own parallel calls, alone,
// behind text and reasoning, several times in a row. Each of these plays the same conversation, and returns what the SDK
// gave of each answer: its text and its calls.
import { generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';
import { result } from './context.mjs';

const lines = [
  'SAY Looking. ;; CALL lookup {"q":"a"} | working-memory_update {"name":"Ada"} | weather {"city":"Bern"} ;; SAY Found both.',
  'REASON I should note that ;; SAY I note that. ;; CALL working-memory_update {"city":"Paris"} ;; SAY Noted.',
  'CALL working-memory_update {"a":1} ;; CALL working-memory_update {"b":2} | working-memory_update {"c":3} ;; ' +
    'REASON now look ;; CALL lookup {"q":"b"} ;; CALL working-memory_update {"d":4} | lookup {"q":"c"} ;; SAY Done with it.',
  'SAY Bye.',
];
const names = { lookup: 'q', weather: 'city' };
const schema = (arg) => ({ type: 'object', properties: { [arg]: { type: 'string' } } });
const chatTools = Object.entries(names).map(([name, arg]) => ({ type: 'function', function: { name, description: name, parameters: schema(arg) } }));
const responsesTools = Object.entries(names).map(([name, arg]) => ({ type: 'function', name, description: name, strict: false, parameters: schema(arg) }));

// chat resends everything, or only what is new.
async function chat(x, ask, delta) {
  const turns = [];
  let messages = [];
  for (const line of lines) {
    messages.push({ role: 'user', content: line });
    for (;;) {
      const { message, usage } = await ask({ model: 'gpt-4.1', tools: chatTools, messages });
      const calls = message.tool_calls ?? [];
      turns.push({ text: message.content ?? '', calls: calls.map((c) => [c.function.name, c.function.arguments]), usage });
      messages = delta ? [] : [...messages, message];
      messages.push(...calls.map((c) => ({ role: 'tool', tool_call_id: c.id, content: result(c.function.name, c.function.arguments) })));
      if (!calls.length) break;
    }
  }
  return turns;
}

const create = (x) => async (body) => {
  const whole = await x.openai().chat.completions.create(body);
  return { message: whole.choices[0].message, usage: whole.usage };
};
const helper = (x) => async (body) => {
  const whole = await x.openai().chat.completions.stream({ ...body, stream: true, stream_options: { include_usage: true } }).finalChatCompletion();
  return { message: whole.choices[0].message, usage: whole.usage };
};

export const chatCreate = (x) => chat(x, create(x));
export const chatStream = (x) => chat(x, helper(x));
export const chatDelta = (x) => chat(x, create(x), true);
export const chatDeltaStream = (x) => chat(x, helper(x), true);

// The SDK's own tool runner, on streams.
export async function chatRunTools(x) {
  const turns = [];
  let messages = [];
  for (const line of lines) {
    const runner = x.openai().chat.completions.runTools({
      model: 'gpt-4.1', stream: true, messages: [...messages, { role: 'user', content: line }],
      tools: Object.entries(names).map(([name, arg]) => ({
        type: 'function',
        function: { name, parse: (s) => s, function: (args) => result(name, args), parameters: schema(arg), description: name },
      })),
    });
    runner.on('chatCompletion', ({ choices: [{ message }] }) =>
      turns.push({ text: message.content ?? '', calls: (message.tool_calls ?? []).map((c) => [c.function.name, c.function.arguments]) }));
    await runner.finalContent();
    messages = runner.messages;
  }
  return turns;
}

// responses resends everything, or names the response before, or sends only what is new.
async function responses(x, ask, habit) {
  const turns = [];
  let input = [];
  let previous;
  for (const line of lines) {
    input.push({ role: 'user', content: line });
    for (;;) {
      const body = { model: 'gpt-5', tools: responsesTools, input };
      if (habit === 'replay') Object.assign(body, { store: false, include: ['reasoning.encrypted_content'] });
      if (habit === 'previous' && previous) body.previous_response_id = previous;
      const whole = await ask(body);
      const calls = whole.output.filter((item) => item.call_id);
      turns.push({ text: whole.output_text, calls: calls.map((c) => [c.name, c.arguments]), usage: whole.usage, kinds: whole.output.map((item) => item.type) });
      previous = whole.id;
      input = habit === 'replay' ? [...input, ...whole.output] : [];
      input.push(...calls.map((c) => ({ type: 'function_call_output', call_id: c.call_id, output: result(c.name, c.arguments) })));
      if (!calls.length) break;
    }
  }
  return turns;
}

const respond = (x) => (body) => x.openai().responses.create(body);
const respondStream = (x) => (body) => x.openai().responses.stream({ ...body, stream: true }).finalResponse();

export const responsesCreate = (x) => responses(x, respond(x), 'replay');
export const responsesStream = (x) => responses(x, respondStream(x), 'replay');
export const responsesDelta = (x) => responses(x, respond(x), 'delta');
export const responsesDeltaStream = (x) => responses(x, respondStream(x), 'delta');
export const responsesPrevious = (x) => responses(x, respond(x), 'previous');
export const responsesPreviousStream = (x) => responses(x, respondStream(x), 'previous');

const aiTools = {
  lookup: tool({ description: 'look up', inputSchema: z.object({ q: z.string() }), execute: async (a) => result('lookup', a) }),
  weather: tool({ description: 'weather', inputSchema: z.object({ city: z.string() }), execute: async (a) => result('weather', a) }),
};

async function ai(x, model, stream) {
  const turns = [];
  const messages = [];
  for (const line of lines) {
    messages.push({ role: 'user', content: line });
    const options = { model, tools: aiTools, messages, stopWhen: isStepCount(10), maxRetries: 0 };
    let r;
    if (stream) {
      const errors = [];
      r = streamText({ ...options, onError: ({ error }) => errors.push(error) });
      await r.consumeStream();
      if (errors.length) throw errors[0];
      r = { steps: await r.steps, response: await r.response, responseMessages: await r.responseMessages };
    } else {
      r = await generateText(options);
    }
    for (const s of r.steps) turns.push({ text: s.text, calls: s.toolCalls.map((c) => [c.toolName, JSON.stringify(c.input)]) });
    messages.push(...(r.responseMessages ?? r.response.messages));
  }
  return turns;
}

export const aiChat = (x) => ai(x, x.aiOpenAI().chat('gpt-4.1'), false);
export const aiChatStream = (x) => ai(x, x.aiOpenAI().chat('gpt-4.1'), true);
export const aiResponses = (x) => ai(x, x.aiOpenAI().responses('gpt-5'), false);
export const aiResponsesStream = (x) => ai(x, x.aiOpenAI().responses('gpt-5'), true);
export const aiCompatibleStream = (x) => ai(x, x.aiCompatible()('some-model'), true);
