import { moderate } from "../api/moderations.ts";
import { callerOf, jsonBody } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byTenantIn, json, ok } from "./openapi/operation.ts";

export const moderations = [
  endpoint("POST /v1/moderations", {
    summary:
      "judge texts with the operator's guard: `input`, a text or several ([docs/moderation.md](docs/moderation.md))",
    operation: byTenantIn("Moderations")("createModeration", "request", {
      openedBy: "GUARD_MODEL",
      body: json("CreateModeration"),
      answers: ok("Moderation"),
      errors: [429],
    }),
    isOpen: ({ guard }) => guard !== undefined,
    handle: async (context) => context.json(await moderate(callerOf(context), await jsonBody(context))),
  }),
];
