import { decide } from "../api/decisions.ts";
import { callWithBody } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byTenantIn, json, ok } from "./openapi/operation.ts";

export const decisions = [
  endpoint("POST /v1/decisions", {
    summary:
      "answer questions about an input with probabilities: `model`, `input`, `questions` of type `predicate`, `choice` or `score` ([docs/moderation.md](docs/moderation.md#decisions))",
    operation: byTenantIn("Decisions")("createDecision", "turn", {
      body: json("CreateDecision"),
      answers: ok("Decision"),
      errors: [404, 429],
    }),
    handle: async (context) => {
      const { caller, body } = await callWithBody(context);
      return context.json(await decide(caller, body));
    },
  }),
];
