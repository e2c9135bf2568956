import { responseBody } from "@responses-edge/turn/response";
import { exportResponse } from "../api/exported-response.ts";
import { forkResponse } from "../api/forks.ts";
import { replayResponse } from "../api/replays.ts";
import { responseAddress } from "../api/responses.ts";
import { eventStream, jsonText, VERSION_HEADER } from "./answers.ts";
import { callerOf, callWithBody, hasBody, jsonBody } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byTenantIn, json } from "./openapi/operation.ts";

const byTenant = byTenantIn("Responses");

export const replays = [
  endpoint("POST /v1/responses/:id/replay", {
    summary:
      "its events once more, as a stream: no model and no tool is asked; with `speed` at the pace of the original ([docs/replay.md](docs/replay.md))",
    operation: byTenant("replayResponse", "read", {
      headers: [VERSION_HEADER],
      body: { ...json("ReplayResponse"), isOptional: true },
      answers: { 200: { "text/event-stream": "ResponseStreamEvent" } },
      errors: [429],
      description:
        "The header `x-replay` says whether the events are those that were sent (`exact`: of background responses, and of those with an `Idempotency-Key`), or made again from the stored items (`rebuilt`).",
    }),
    handle: async (context) => {
      const address = responseAddress(context.req.param("id"));
      const body = hasBody(context) ? await jsonBody(context) : {};
      const { events, kind } = await replayResponse(callerOf(context), address, body);
      context.header("x-replay", kind);
      return eventStream(context, events);
    },
  }),
  endpoint("GET /v1/responses/:id/export", {
    summary:
      "with the responses that it continues, as JSON lines: their events and times, for `responses-edge replay` and for an import ([docs/replay.md](docs/replay.md#export))",
    operation: byTenant("exportResponse", "read", {
      answers: { 200: { "application/jsonl": "ExportLine" } },
      errors: [400, 409],
    }),
    handle: async (context) => {
      const lines = await exportResponse(callerOf(context), responseAddress(context.req.param("id")));
      return context.body(lines, 200, { "content-type": "application/jsonl" });
    },
  }),
  endpoint("POST /v1/responses/:id/fork", {
    summary:
      "a new branch: begins with its output up to `at`, with other fields, or another `output` of a call ([docs/replay.md](docs/replay.md#fork))",
    operation: byTenant("forkResponse", "turn", {
      headers: [VERSION_HEADER],
      body: { ...json("ForkResponse"), isOptional: true },
      answers: { 200: { "application/json": "ResponseObject", "text/event-stream": "ResponseStreamEvent" } },
      errors: [409, 422, 424, 429],
      description:
        "The body may have all fields of `CreateResponse`, except `input`, `previous_response_id` and `conversation`. Fields that it leaves out are those of the response.",
    }),
    handle: async (context) => {
      const address = responseAddress(context.req.param("id"));
      const { caller, body } = hasBody(context) ? await callWithBody(context) : { caller: callerOf(context), body: {} };
      const created = await forkResponse(caller, address, body);
      return created.kind === "run"
        ? eventStream(context, created.events)
        : jsonText(context, responseBody(created.response));
    },
  }),
];
