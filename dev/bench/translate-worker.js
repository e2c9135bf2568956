import { connect } from "cloudflare:sockets";

/**
 * The minimum for a Worker that translates: it makes a chat completion of the request, and an event, or the JSON of a
 * response, of each delta of the answer. It checks and limits nothing, and leaves out every event that is not a delta.
 * It streams over a socket to the model server, as `serve` does.
 */
export default {
  async fetch(request, env, context) {
    if (request.method !== "POST") return new Response();
    const { model, input, stream } = await request.json();
    const options = stream ? { stream_options: { include_usage: true } } : {};
    const body = JSON.stringify({ model, messages: input, stream, ...options });
    if (stream) return events(context, askOverSocket(env.UPSTREAM_ORIGIN, body));
    const answer = await fetch(`${env.UPSTREAM_ORIGIN}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
    });
    const { choices } = await answer.json();
    const content = [{ type: "output_text", text: choices[0].message.content, annotations: [] }];
    return Response.json({ object: "response", model, output: [{ type: "message", role: "assistant", content }] });
  },
};

export const encoder = new TextEncoder();

/** Gives the bytes of the connection. The lines of the head and of the chunks' sizes look like no event. */
export function askOverSocket(origin, body) {
  const { hostname, port } = new URL(origin);
  const socket = connect({ hostname, port: Number(port) }, { allowHalfOpen: true });
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: ${hostname}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${encoder.encode(body).length}\r\n\r\n`;
  socket.writable.getWriter().write(encoder.encode(head + body));
  return socket.readable;
}

/** `lastEvent` makes an event of the whole text; it comes after all others. */
export function events(context, body, lastEvent) {
  const { readable, writable } = new IdentityTransformStream();
  context.waitUntil(translate(body.getReader(), writable.getWriter(), lastEvent));
  return new Response(readable, { headers: { "content-type": "text/event-stream" } });
}

/** A connection does not end by itself, so that the last event marks the end. */
async function translate(reader, writer, lastEvent) {
  const decoder = new TextDecoder();
  const deltas = [];
  let held = "";
  let sequence_number = 0;
  try {
    for (let isOver = false; !isOver; ) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (held + decoder.decode(value, { stream: true })).split("\n");
      held = lines.pop();
      let events = "";
      for (const line of lines) {
        isOver ||= line === "data: [DONE]";
        if (!line.startsWith("data: {")) continue;
        const delta = JSON.parse(line.slice(6)).choices[0]?.delta.content;
        if (!delta) continue;
        if (lastEvent) deltas.push(delta);
        const type = "response.output_text.delta";
        const event = { type, item_id: "msg_1", output_index: 0, content_index: 0, delta, logprobs: [] };
        events += `event: ${type}\ndata: ${JSON.stringify({ ...event, sequence_number })}\n\n`;
        sequence_number += 1;
      }
      if (events !== "") await writer.write(encoder.encode(events));
    }
    if (lastEvent) await writer.write(encoder.encode(await lastEvent(deltas.join(""))));
    await writer.close();
    await reader.cancel();
  } catch {
    // The client has left.
    await reader.cancel().catch(() => {});
  }
}
