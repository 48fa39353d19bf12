// Endpoints that Remora does not remember: they pass as they are, with and without a session.
export const embeddings = async (x) => {
  const client = x.openai();
  return {
    base64: await client.embeddings.create({ model: 'text-embedding-3-small', input: ['one', 'two'] }),
    float: await client.embeddings.create({ model: 'text-embedding-3-small', input: 'three', encoding_format: 'float', dimensions: 8 }),
  };
};

export const models = async (x) => {
  const client = x.openai();
  return { list: (await client.models.list()).data, one: await client.models.retrieve('gpt-4.1') };
};

export const files = async (x) => {
  const client = x.openai();
  const file = new File([new Uint8Array([0, 255, 13, 10, 13, 10, 45, 45])], 'data \u00fc.bin');
  // The boundary of a multipart body is random, and with it the id that upstream gives: the size has to do.
  const { bytes, status } = await client.files.create({ file, purpose: 'user_data' });
  for (const t of x.record.tries) delete t.headers['x-request-id'], delete t.headers['openai-processing-ms'];
  return { bytes, status, list: (await client.files.list()).data };
};

export const unknownEndpoint = async (x) => {
  const client = x.openai();
  const got = await client.post('/some/new//endpoint%2F?b=2&a=1&a=%20', { body: { z: 1, a: [1.5] } });
  // It answers with the request as it arrived; what must differ is taken out.
  delete got.host;
  got.headers = got.headers.filter((h) => !['host', 'connection', 'x-session-id'].includes(h.name.toLowerCase()));
  got.headers.sort((a, b) => (a.name < b.name ? -1 : 1));
  return got;
};
