import { DurableObject } from "cloudflare:workers";
import { askOverSocket, events } from "./translate-worker.js";

/**
 * The least that a Worker on this runtime does for an answer as `serve` gives it: as `translate-worker.js`, but it asks
 * for a stream for a JSON answer, too, and reads that in few reads. With `store: true` one of 64 objects writes a row for each turn before the
 * answer ends, and a turn that continues another one gets its messages from there.
 */
export default {
  async fetch(request, env, context) {
    if (request.method !== "POST") return new Response();
    const { model, input, stream, store, previous_response_id: previous } = await request.json();
    const home = previous?.split("_")[1] ?? String(Math.floor(Math.random() * HOMES));
    const id = `resp_${home}_${crypto.randomUUID()}`;
    const object = env.HOME.getByName(home);
    const messages = previous === undefined ? input : [...(await object.messages(previous)), ...input];
    const keep = (text) => object.keep(id, previous, JSON.stringify([...input, { role: "assistant", content: text }]));
    const body = JSON.stringify({ model, messages, stream: true, stream_options: { include_usage: true } });
    if (stream) {
      const lastEvent = async (text) => {
        await keep(text);
        return `event: response.completed\ndata: ${JSON.stringify({ type: "response.completed", response: { id } })}\n\n`;
      };
      return events(context, askOverSocket(env.UPSTREAM_ORIGIN, body), store ? lastEvent : undefined);
    }
    const answer = await fetch(`${env.UPSTREAM_ORIGIN}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
    });
    const text = await textOf(answer);
    if (store) await keep(text);
    const content = [{ type: "output_text", text, annotations: [] }];
    return Response.json({ id, object: "response", model, output: [{ type: "message", role: "assistant", content }] });
  },
};

const HOMES = 64;

/** Bytes that are read at a time, after the first ones. */
const LEAST = 16_384;

async function textOf({ body }) {
  const reader = body.getReader({ mode: "byob" });
  const decoder = new TextDecoder();
  let lines = "";
  for (let least = 1, isOver = false; !isOver; least = LEAST) {
    const { done, value } = await reader.readAtLeast(least, new Uint8Array(LEAST));
    isOver = done || value.length < least;
    lines += decoder.decode(value, { stream: true });
  }
  const chunks = lines.split("\n").filter((line) => line.startsWith("data: {"));
  return chunks.map((line) => JSON.parse(line.slice(6)).choices[0]?.delta.content ?? "").join("");
}

export class Home extends DurableObject {
  #sql = this.ctx.storage.sql;

  constructor(context, env) {
    super(context, env);
    this.#sql.exec(
      "CREATE TABLE IF NOT EXISTS turns (id TEXT PRIMARY KEY, previous TEXT, messages TEXT) WITHOUT ROWID",
    );
  }

  /** Resolves when the row is on the disk. */
  keep(id, previous, messages) {
    this.#sql.exec("INSERT INTO turns (id, previous, messages) VALUES (?, ?, ?)", id, previous ?? null, messages);
  }

  messages(id) {
    const rows = this.#sql.exec(CHAIN, id).toArray();
    return rows.reverse().flatMap(({ messages }) => JSON.parse(messages));
  }
}

const CHAIN = `WITH RECURSIVE chain AS (
  SELECT previous, messages FROM turns WHERE id = ?
  UNION ALL SELECT turns.previous, turns.messages FROM turns JOIN chain ON turns.id = chain.previous
) SELECT messages FROM chain`;
