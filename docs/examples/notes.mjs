// A custom layer for Remora: it remembers what users ask it to remember. Needs Node and nothing else.
//   LAYER_SECRET=change-me node notes.mjs 8090
import http from "node:http";
import { createHmac, timingSafeEqual } from "node:crypto";

const secret = process.env.LAYER_SECRET ?? "";

// One function per hook. It gets the request and returns the answer; the state is ours to choose, null at first.
const hooks = {
  recall({ state }) {
    const notes = state?.notes ?? [];
    return notes.length > 0 ? { messages: ["The user asked to remember:\n" + notes.join("\n")] } : {};
  },
  store({ state, turn }) {
    const note = /^remember\b[\s:]*(?:that\s+)?(.+)/i.exec(turn.query)?.[1];
    const notes = state?.notes ?? [];
    if (!note || notes.includes(note)) return {}; // a hook may come twice: the second time changes nothing
    return { state: { notes: [...notes, note.slice(0, 200)].slice(-50) } };
  },
  tools({ tool, state }) {
    const notes = (state?.notes ?? []).filter((n) => !n.includes(tool.arguments.text));
    return { result: `${notes.length} notes are left.`, state: { notes } };
  },
};

// genuine tells whether Remora sent this body, and sent it within the last five minutes.
function genuine(headers, body) {
  const time = headers["x-remora-timestamp"] ?? "";
  const want = "sha256=" + createHmac("sha256", secret).update(`${time}.`).update(body).digest("hex");
  const have = headers["x-remora-signature"] ?? "";
  return have.length === want.length && timingSafeEqual(Buffer.from(have), Buffer.from(want)) && Math.abs(Date.now() / 1000 - time) < 300;
}

http.createServer(async (req, res) => {
  const body = Buffer.concat(await req.toArray());
  if (secret && !genuine(req.headers, body)) return res.writeHead(401).end();
  const request = JSON.parse(body);
  res.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(hooks[request.hook]?.(request) ?? {}));
}).listen(Number(process.argv[2] ?? 8090), "127.0.0.1", function () {
  console.log(`listening on http://127.0.0.1:${this.address().port}/`);
});
