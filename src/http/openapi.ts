import { type Endpoint, endpoint } from "./endpoint.ts";
import { describeApi } from "./openapi/document.ts";
import { ok } from "./openapi/operation.ts";

/** The endpoint that describes all others, and itself. `all` is asked when the first request for it comes. */
export function description(all: () => readonly Endpoint[]): readonly Endpoint[] {
  // The same for as long as the isolate lives: to make it takes tens of milliseconds.
  let text: string | undefined;
  return [
    endpoint({
      method: "GET",
      path: "/openapi.json",
      summary: "this API's description (OpenAPI 3.1); needs no key",
      operation: { id: "description", group: "Operation", access: "everyone", answers: ok("Description") },
      handle: (context) => {
        text ??= JSON.stringify(describeApi(all()));
        return context.body(text, 200, { "content-type": "application/json" });
      },
    }),
  ];
}
