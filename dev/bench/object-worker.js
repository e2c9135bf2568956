/**
 * The minimal cost of the parts of a request on this runtime. `/new` stores one row, with an alarm, in a new object for
 * each request, as a new conversation does. `/known` always stores it in the same object, and `/call` only calls that
 * object. `/whole`, `/reads` and `/socket` ask the model server: for an answer in one piece, for a stream that is read
 * by HTTP chunks, and for the same stream over a connection of its own.
 */
import { connect } from "cloudflare:sockets";
import { DurableObject } from "cloudflare:workers";

export class Home extends DurableObject {
  async put(key, value) {
    const { sql } = this.ctx.storage;
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(Date.now() + 1e9);
    sql.exec("CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID");
    sql.exec("INSERT INTO rows (key, value) VALUES (?, ?)", key, value);
  }

  nothing() {}

  alarm() {}
}

const STREAM = { stream: true, stream_interval: 16 };

const ASK = {
  "/whole": async (origin, body) => (await ask(origin, body)).text(),
  "/reads": async (origin, body) => readAll((await ask(origin, { ...body, ...STREAM })).body),
  async "/socket"(origin, body) {
    const { hostname, port } = new URL(origin);
    const socket = connect({ hostname, port: Number(port) }, { allowHalfOpen: true });
    const json = JSON.stringify({ ...body, ...STREAM });
    const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: ${hostname}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${json.length}\r\n\r\n`;
    await socket.writable.getWriter().write(new TextEncoder().encode(head + json));
    await readAll(socket.readable, true);
  },
};

function ask(origin, body) {
  const headers = { "content-type": "application/json" };
  return fetch(`${origin}/v1/chat/completions`, { method: "POST", headers, body: JSON.stringify(body) });
}

/** A connection does not end by itself, so that the last event marks the end. */
async function readAll(body, isConnection = false) {
  const reader = body.getReader({ mode: "byob" });
  let buffer = new ArrayBuffer(4096);
  for (;;) {
    const { value, done } = await reader.read(new Uint8Array(buffer));
    if (done) return;
    if (isConnection && new TextDecoder().decode(value).includes("[DONE]")) return reader.cancel();
    buffer = value.buffer;
  }
}

const VALUE = "x".repeat(3000);

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (request.method !== "POST") return new Response();
    const { model } = await request.json();
    if (pathname === "/empty") return new Response("ok");
    if (pathname in ASK) {
      await ASK[pathname](env.UPSTREAM_ORIGIN, { model, messages: [{ role: "user", content: "Hello" }] });
      return new Response("ok");
    }
    if (pathname === "/call") {
      await env.HOME.getByName("known").nothing();
      return new Response("ok");
    }
    const key = crypto.randomUUID();
    await env.HOME.getByName(pathname === "/new" ? key : "known").put(key, VALUE);
    return new Response("ok");
  },
};
