/**
 * The minimum for a Worker whose JavaScript handles the answer: it reads the answer and writes the same bytes to its
 * client.
 */
export default {
  async fetch(request, env, context) {
    const answer = await fetch(new Request(env.UPSTREAM_ORIGIN + new URL(request.url).pathname, request));
    const { readable, writable } = new IdentityTransformStream();
    context.waitUntil(copy(answer.body.getReader(), writable.getWriter()));
    return new Response(readable, answer);
  },
};

async function copy(reader, writer) {
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return await writer.close();
      await writer.write(value);
    }
  } catch {
    // The client has left.
    await reader.cancel().catch(() => {});
  }
}
