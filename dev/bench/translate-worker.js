/**
 * The floor of a Worker that translates: makes a chat completion of the request, and an event, or the JSON of a response, of
 * each delta of its answer. It checks nothing, bounds nothing, and leaves out every event that is not a delta.
 */
export default {
  async fetch(request, env, context) {
    if (request.method !== "POST") return new Response();
    const { model, input, stream } = await request.json();
    const options = stream ? { stream_options: { include_usage: true } } : {};
    const answer = await fetch(`${env.UPSTREAM_ORIGIN}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, messages: input, stream, ...options }),
    });
    if (!stream) {
      const { choices } = await answer.json();
      const content = [{ type: "output_text", text: choices[0].message.content, annotations: [] }];
      return Response.json({ object: "response", model, output: [{ type: "message", role: "assistant", content }] });
    }
    const { readable, writable } = new IdentityTransformStream();
    context.waitUntil(translate(answer.body.getReader(), writable.getWriter()));
    return new Response(readable, { headers: { "content-type": "text/event-stream" } });
  },
};

const encoder = new TextEncoder();

async function translate(reader, writer) {
  const decoder = new TextDecoder();
  let held = "";
  let sequence_number = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return await writer.close();
      const lines = (held + decoder.decode(value, { stream: true })).split("\n");
      held = lines.pop();
      let events = "";
      for (const line of lines) {
        if (!line.startsWith("data: {")) continue;
        const delta = JSON.parse(line.slice(6)).choices[0]?.delta.content;
        if (!delta) continue;
        const type = "response.output_text.delta";
        const event = { type, item_id: "msg_1", output_index: 0, content_index: 0, delta, logprobs: [] };
        events += `event: ${type}\ndata: ${JSON.stringify({ ...event, sequence_number })}\n\n`;
        sequence_number += 1;
      }
      if (events !== "") await writer.write(encoder.encode(events));
    }
  } catch {
    // The client has left.
    await reader.cancel().catch(() => {});
  }
}
