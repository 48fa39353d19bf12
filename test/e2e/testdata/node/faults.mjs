// What an upstream gets wrong has to reach the SDK as it is: class, status, message, headers, number of tries.
import { collect } from './context.mjs';

const model = 'gpt-4.1';
const messages = [{ role: 'user', content: 'SAY a few words that take several events to say' }];
const ask = (x, options) => x.outcome(x.openai(options).chat.completions.create({ model, messages }));
const listen = (x, options) => collect(x.openai(options).chat.completions.create({ model, messages, stream: true }));
const respond = (x, options) => collect(x.openai(options).responses.create({ model: 'gpt-5', input: messages[0].content, stream: true }));

export const badRequest = (x) =>
  x.outcome(x.openai().chat.completions.create({ model, messages, stream_options: { include_usage: true } }));
export const badResponses = (x) =>
  x.outcome(x.openai().responses.create({ model: 'gpt-5', input: 'x', previous_response_id: 'resp_1', conversation: 'conv_1' }));
export const unauthorized = (x) => ask(x, { faults: 'status=401' });
export const rateLimited = (x) => ask(x, { faults: 'status=429;retry-after=2' });
export const rateLimitedOnce = (x) => ask(x, { faults: ['status=429;retry-after=0.01'], maxRetries: 2 });
export const serverError = (x) => ask(x, { faults: 'status=500;retry-after=0.01', maxRetries: 2 });
export const serverErrorOnce = (x) => listen(x, { faults: ['status=500'], maxRetries: 1 });
export const conflict = (x) => ask(x, { faults: 'status=409' });
export const html = (x) => ask(x, { faults: 'html' });
export const htmlStream = (x) => listen(x, { faults: 'html' });
export const errorInStream = (x) => listen(x, { faults: 'error-in-stream' });
export const errorInResponse = (x) => respond(x, { faults: 'error-in-stream' });
export const cut = (x) => listen(x, { faults: 'cut-after=3' });
export const cutResponse = (x) => respond(x, { faults: 'cut-after=4' });
export const cutBody = (x) => ask(x, { faults: 'cut-after=1' });
export const cutAtOnce = (x) => listen(x, { faults: 'cut-after=0' });
export const withoutDone = (x) => listen(x, { faults: 'no-done' });
export const withoutCompleted = (x) => respond(x, { faults: 'no-done' });
export const comments = (x) => listen(x, { faults: 'comments' });
export const tinyChunks = (x) => listen(x, { faults: 'chunk=1' });
export const oddChunks = (x) => respond(x, { faults: 'chunk=7,piece=1' });
export const gzip = (x) => ask(x, { faults: 'gzip' });
export const gzipStream = (x) => listen(x, { faults: 'gzip' });
export const length = (x) => ask(x, { faults: 'length' });
export const close = (x) => ask(x, { faults: 'close' });
export const large = (x) => ask(x, { faults: 'big=512' });
export const largeStream = (x) => respond(x, { faults: 'big=256,piece=4096' });

const orphans = [
  { role: 'user', content: 'hello' },
  { role: 'tool', tool_call_id: 'call_lost', content: 'nobody asked' },
  { role: 'user', content: 'SAY still here' },
];
export const orphanChat = (x) => x.outcome(x.openai().chat.completions.create({ model, messages: orphans }));
export const orphanResponses = (x) =>
  x.outcome(x.openai().responses.create({
    model: 'gpt-5',
    input: [orphans[0], { type: 'function_call_output', call_id: 'call_lost', output: 'nobody asked' }, orphans[2]],
  }));
