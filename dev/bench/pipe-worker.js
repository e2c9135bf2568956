/** The minimum for a Worker in front of vLLM: it forwards the request and pipes the bytes back. */
export default {
  fetch(request, env) {
    return fetch(new Request(env.UPSTREAM_ORIGIN + new URL(request.url).pathname, request));
  },
};
