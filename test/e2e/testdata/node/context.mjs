// What a scenario gets: clients of every SDK whose HTTP traffic is written down.
import OpenAI from 'openai';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

// Headers of an answer that belong to a connection, not to the answer.
const connectionHeaders = new Set(['connection', 'keep-alive', 'date', 'transfer-encoding', 'content-length']);
// Headers that Remora adds to the answers that it remembers.
const ownHeaders = new Set(['x-session-id', 'x-turn-id', 'x-memory', 'server-timing']);

export const key = 'sk-e2e';

export function context(name, { baseURL, session, control }) {
  const record = { tries: [] };

  // fetchWith writes every try down. faults is what X-Script says: for all tries, or a list with one for each.
  const fetchWith = (faults) => async (url, init) => {
    const headers = new Headers(init?.headers);
    const n = record.tries.length;
    const fault = Array.isArray(faults) ? faults[n] : faults;
    if (fault) headers.set('x-script', fault);
    const entry = { method: init?.method ?? 'GET', path: new URL(url).pathname + new URL(url).search };
    record.tries.push(entry);
    const response = await fetch(url, { ...init, headers });
    entry.status = response.status;
    entry.headers = {};
    for (const [k, v] of response.headers) {
      if (ownHeaders.has(k)) (entry.own ??= {})[k] = v;
      else if (!connectionHeaders.has(k)) entry.headers[k] = v;
    }
    return response;
  };

  // One scenario may hold several conversations; each has a session of its own.
  const headers = (conversation) =>
    session ? { 'X-Session-Id': conversation ? `node ${name} ${conversation}` : `node ${name}` } : {};

  return {
    name,
    record,
    session,
    control,
    headers,
    openai: ({ faults, maxRetries = 0, conversation } = {}) =>
      new OpenAI({
        apiKey: key, baseURL, maxRetries, fetch: fetchWith(faults), defaultHeaders: headers(conversation),
      }),
    aiOpenAI: ({ faults, conversation } = {}) =>
      createOpenAI({ apiKey: key, baseURL, fetch: fetchWith(faults), headers: headers(conversation) }),
    aiCompatible: ({ faults, conversation } = {}) =>
      createOpenAICompatible({
        name: 'compatible', apiKey: key, baseURL, includeUsage: true, fetch: fetchWith(faults),
        headers: headers(conversation),
      }),
    describe,
    outcome,
  };
}

// describe is what a program can learn of an error.
export function describe(error) {
  const d = { class: error?.constructor?.name, message: String(error?.message).replace(/127\.0\.0\.1:\d+/g, 'HOST') };
  for (const member of ['name', 'status', 'statusCode', 'code', 'type', 'param', 'requestID', 'error', 'responseBody', 'isRetryable', 'reason']) {
    if (error?.[member] !== undefined) d[member] = error[member];
  }
  if (error?.lastError) d.lastError = describe(error.lastError);
  if (Array.isArray(error?.errors)) d.errors = error.errors.map(describe);
  if (error?.cause instanceof Error) d.cause = { class: error.cause.constructor.name, message: error.cause.message };
  return d;
}

// outcome is a promise's value, or its error as a value.
async function outcome(promise) {
  try {
    return { value: await promise };
  } catch (error) {
    return { thrown: describe(error) };
  }
}

// collect reads a stream to its end, or to its error.
export async function collect(stream) {
  const events = [];
  try {
    for await (const event of await stream) events.push(structuredClone(event));
  } catch (error) {
    return { events, thrown: describe(error) };
  }
  return { events };
}

// result is what every tool of every scenario answers.
export const result = (name, args) => `${name} says ok to ${typeof args === 'string' ? args : JSON.stringify(args)}`;
