import type { Context } from "hono";
import { type PassedAnswer, passForm, passJson } from "../api/passthrough.ts";
import type { PassthroughEndpoint } from "../config/index.ts";
import { SSE_HEADERS } from "../protocol/sse-stream.ts";
import type { AppEnv } from "./app-env.ts";
import { callerOf, formBody, jsonBody } from "./caller.ts";
import { type Endpoint, endpoint } from "./endpoint.ts";
import type { Operation, OperationBody } from "./openapi/operation.ts";

/** vLLM's own endpoints, as far as the operator opens them (`PASSTHROUGH_ENDPOINTS`). */

/** The answer's bytes as they come. The client gets the header with their type, and no other one of the model server's. */
function answerOf(context: Context<AppEnv>, { type, body, server }: PassedAnswer): Response {
  if (context.get("config").showsUpstream) context.header("x-upstream", server);
  const isStream = type.startsWith("text/event-stream");
  const headers = isStream ? { ...SSE_HEADERS, "content-type": type } : { "content-type": type };
  return body === null ? context.body(null, 200, headers) : context.body(body, 200, headers);
}

/** The entry of one of them in the API's description, which leaves out the model server's own answers. */
function operation(name: PassthroughEndpoint, body: OperationBody): Operation {
  const words = name.split("/").map((word) => word.charAt(0).toUpperCase() + word.slice(1));
  return {
    id: `pass${words.join("")}`,
    group: "Model server",
    access: "tenant",
    counted: "turn",
    openedBy: "PASSTHROUGH_ENDPOINTS",
    body,
    answers: {
      200: { "application/json": "PassedAnswer", "text/event-stream": "PassedAnswer", "text/plain": "PassedAnswer" },
    },
    errors: [422, 429],
  };
}

function json(name: PassthroughEndpoint, path: string, summary: string): Endpoint {
  return endpoint({
    method: "POST",
    path,
    summary,
    operation: operation(name, { name: "PassedRequest", type: "application/json" }),
    isOpen: ({ passthroughEndpoints }) => passthroughEndpoints.has(name),
    handle: async (context) => {
      const body = await jsonBody(context);
      return answerOf(context, await passJson(callerOf(context), name, body));
    },
  });
}

function form(name: PassthroughEndpoint, path: string, summary: string): Endpoint {
  return endpoint({
    method: "POST",
    path,
    summary,
    operation: operation(name, { name: "PassedForm", type: "multipart/form-data" }),
    isOpen: ({ passthroughEndpoints }) => passthroughEndpoints.has(name),
    handle: async (context) => {
      const { bytes, type } = await formBody(context);
      return answerOf(context, await passForm(callerOf(context), name, bytes, type));
    },
  });
}

export const passthrough = [
  json(
    "chat/completions",
    "/v1/chat/completions",
    "vLLM's own, where `PASSTHROUGH_ENDPOINTS` opens it ([docs/passthrough.md](docs/passthrough.md)), as are the next nine",
  ),
  json("completions", "/v1/completions", "vLLM's own"),
  json("embeddings", "/v1/embeddings", "vLLM's own"),
  json("rerank", "/v1/rerank", "vLLM's own"),
  json("score", "/v1/score", "vLLM's own"),
  form("audio/transcriptions", "/v1/audio/transcriptions", "vLLM's own"),
  form("audio/translations", "/v1/audio/translations", "vLLM's own"),
  json("messages", "/v1/messages", "vLLM's own: Anthropic's Messages"),
  json("tokenize", "/tokenize", "vLLM's own"),
  json("detokenize", "/detokenize", "vLLM's own"),
];
