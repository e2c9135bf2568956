/** The least that a Worker in front of vLLM can do: passes the request on and pipes the bytes back. */
export default {
  fetch(request, env) {
    return fetch(new Request(env.UPSTREAM_ORIGIN + new URL(request.url).pathname, request));
  },
};
