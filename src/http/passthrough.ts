import { SSE_HEADERS } from "@responses-edge/bounded-io/event-stream/sse-stream";
import type { Context } from "hono";
import { AT_ROOT, type PassedAnswer, passForm, passJson } from "../api/passthrough.ts";
import { PASSTHROUGH_ENDPOINTS, type PassthroughEndpoint } from "../config/index.ts";
import type { AppEnv } from "./app-env.ts";
import { callWithBody, callWithForm } from "./caller.ts";
import { endpoint } from "./endpoint.ts";

/** vLLM's own endpoints, where the operator opens them (`PASSTHROUGH_ENDPOINTS`). */

/** The answer's bytes as they come in. The client gets no header of the model server except the content type. */
function answerOf(context: Context<AppEnv>, { type, body, server }: PassedAnswer): Response {
  if (context.get("config").showsUpstream) context.header("x-upstream", server);
  const isStream = type.startsWith("text/event-stream");
  if (isStream) context.set("isStream", true);
  const headers = isStream ? { ...SSE_HEADERS, "content-type": type } : { "content-type": type };
  return body === null ? context.body(null, 200, headers) : context.body(body, 200, headers);
}

const SUMMARIES: Partial<Record<PassthroughEndpoint, string>> = {
  "chat/completions":
    "vLLM's own, where `PASSTHROUGH_ENDPOINTS` opens it ([docs/model-servers.md](docs/model-servers.md#vllms-own-endpoints)), as are the next seventeen",
  "images/generations": "an image server's own: draws ([docs/tools.md](docs/tools.md#images))",
  "images/edits": "an image server's own: changes images",
  messages: "vLLM's own: Anthropic's Messages",
  "messages/count_tokens": "vLLM's own: the tokens of a request of Messages",
  "chat/completions/render": "vLLM's own: the prompt of a request, as its model would read it",
  "responses/render": "vLLM's own: the same of a request of vLLM's Responses",
};

const ANSWER = "PassedAnswer";

export const passthrough = PASSTHROUGH_ENDPOINTS.map((name) => {
  const words = name.split(/[/_]/).map((word) => word.charAt(0).toUpperCase() + word.slice(1));
  const isForm = name.startsWith("audio/") || name === "images/edits";
  return endpoint(`POST ${AT_ROOT.has(name) ? "" : "/v1"}/${name}`, {
    summary: SUMMARIES[name] ?? "vLLM's own",
    operation: {
      id: `pass${words.join("")}`,
      group: "Model server",
      access: "tenant",
      counted: "turn",
      openedBy: "PASSTHROUGH_ENDPOINTS",
      body: isForm
        ? { name: "PassedForm", type: "multipart/form-data" }
        : { name: "PassedRequest", type: "application/json" },
      // The description does not specify the model server's own answers.
      answers: { 200: { "application/json": ANSWER, "text/event-stream": ANSWER, "text/plain": ANSWER } },
      errors: [422, 429],
    },
    isOpen: ({ passthroughEndpoints }) => passthroughEndpoints.has(name),
    handle: async (context) => {
      if (!isForm) {
        const { caller, body } = await callWithBody(context);
        return answerOf(context, await passJson(caller, name, body));
      }
      const { caller, bytes, type } = await callWithForm(context);
      return answerOf(context, await passForm(caller, name, bytes, type));
    },
  });
});
