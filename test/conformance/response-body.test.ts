import { describe, expect, test } from "vitest";
import { goodItems, goodResponse, objectAt, openResponse } from "./fixtures.ts";
import { checkResponse, echoViolations, RESPONSE_RULES, responseViolations } from "./response-body.ts";
import { type JsonObject, ruleLabel } from "./violations.ts";

/** Each breaks one rule of a valid completed response. */
const MUTATIONS: readonly (readonly [rule: string, what: string, mutate: (response: JsonObject) => void])[] = [
  [
    "#21 schema",
    "output is no list",
    (body) => {
      body.output = {};
    },
  ],
  [
    "#21 schema",
    "an unknown item type",
    (body) => {
      objectAt(body, "output", 0).type = "vendor:thought";
    },
  ],
  ["#21 schema", "usage without cache_write_tokens", (body) => delete usageDetails(body).cache_write_tokens],
  ["#21 schema", "usage without cached_tokens", (body) => delete usageDetails(body).cached_tokens],
  [
    "#21 schema",
    "reasoning content null",
    (body) => {
      objectAt(body, "output", 0).content = null;
    },
  ],
  [
    "#21 requiredKeysFilled",
    "a null temperature",
    (body) => {
      body.temperature = null;
    },
  ],
  [
    "#21 requiredKeysFilled",
    "a null service_tier",
    (body) => {
      body.service_tier = null;
    },
  ],
  [
    "#21 requiredKeysFilled",
    "half a reasoning",
    (body) => {
      body.reasoning = { effort: "low" };
    },
  ],
  [
    "#21 requiredKeysFilled",
    "text without format",
    (body) => {
      body.text = { verbosity: "low" };
    },
  ],
  [
    "#21 requiredKeysFilled",
    "created_at in milliseconds",
    (body) => {
      body.created_at = 1_790_000_000_000;
    },
  ],
  ["#21 functionToolsFilled", "a tool without description", (body) => delete objectAt(body, "tools", 0).description],
  [
    "#22 usageAddsUp",
    "a wrong total",
    (body) => {
      objectAt(body, "usage").total_tokens = 31;
    },
  ],
  [
    "#22 usageAddsUp",
    "more cached than input",
    (body) => {
      usageDetails(body).cached_tokens = 11;
    },
  ],
  [
    "#22 usageAddsUp",
    "more reasoning than output",
    (body) => {
      objectAt(body, "usage", "output_tokens_details").reasoning_tokens = 21;
    },
  ],
  [
    "#22 usageAddsUp",
    "a negative count",
    (body) => void Object.assign(objectAt(body, "usage"), { output_tokens: -1, total_tokens: 9 }),
  ],
  [
    "#23 statusExplained",
    "completed without completed_at",
    (body) => {
      body.completed_at = null;
    },
  ],
  [
    "#23 statusExplained",
    "completed before created",
    (body) => {
      body.completed_at = 1;
    },
  ],
  [
    "#23 statusExplained",
    "an error though completed",
    (body) => {
      body.error = error();
    },
  ],
  [
    "#23 statusExplained",
    "failed without an error",
    (body) => void Object.assign(body, { status: "failed", completed_at: null }),
  ],
  [
    "#23 statusExplained",
    "an empty error message",
    (body) => void Object.assign(body, { status: "failed", completed_at: null, error: { ...error(), message: "" } }),
  ],
  ["#23 statusExplained", "incomplete without a reason", (body) => void Object.assign(body, incomplete({}))],
  [
    "#23 statusExplained",
    "incomplete_details though completed",
    (body) => {
      body.incomplete_details = { reason: "max_output_tokens" };
    },
  ],
  [
    "#23 onlyLastItemIncomplete",
    "an incomplete item in a completed response",
    (body) => {
      objectAt(body, "output", 3).status = "incomplete";
    },
  ],
  [
    "#23 onlyLastItemIncomplete",
    "an incomplete item that is not the last",
    (body) => {
      Object.assign(body, incomplete({ reason: "max_output_tokens" }));
      objectAt(body, "output", 1).status = "incomplete";
      objectAt(body, "output", 3).status = "incomplete";
    },
  ],
  [
    "#23 onlyLastItemIncomplete",
    "an incomplete response of complete items",
    (body) => void Object.assign(body, incomplete({ reason: "max_output_tokens" })),
  ],
  ["#23 itemStatusesFitResponse", "reasoning without status", (body) => delete objectAt(body, "output", 0).status],
  [
    "#23 itemStatusesFitResponse",
    "an open item in a completed response",
    (body) => {
      objectAt(body, "output", 2).status = "in_progress";
    },
  ],
  ["#10 idsUsable", "a call without id", (body) => delete objectAt(body, "output", 2).id],
  [
    "#10 idsUsable",
    "an empty id",
    (body) => {
      objectAt(body, "output", 0).id = "";
    },
  ],
  [
    "#10 idsUsable",
    "an id used twice",
    (body) => {
      objectAt(body, "output", 3).id = "fc_1";
    },
  ],
  [
    "#10 idsUsable",
    "a long item id",
    (body) => {
      objectAt(body, "output", 0).id = `rs_${"a".repeat(62)}`;
    },
  ],
  [
    "#10 idsUsable",
    "a long response id",
    (body) => {
      body.id = `resp_${"a".repeat(60)}`;
    },
  ],
  [
    "#10 idsUsable",
    "an empty call_id",
    (body) => {
      objectAt(body, "output", 2).call_id = "";
    },
  ],
  [
    "#21 nullsOmitted",
    "phase null",
    (body) => {
      objectAt(body, "output", 1).phase = null;
    },
  ],
  [
    "#21 nullsOmitted",
    "encrypted_content null",
    (body) => {
      objectAt(body, "output", 0).encrypted_content = null;
    },
  ],
  [
    "#13 completedArgumentsAreJson",
    "arguments cut off",
    (body) => {
      objectAt(body, "output", 2).arguments = '{"city":';
    },
  ],
  [
    "#16 reasoningLeadsSomewhere",
    "reasoning after its message",
    (body) => {
      body.output = [goodItems()[1], goodItems()[0]];
    },
  ],
  ["#19 logprobsFilled", "no logprobs", (body) => delete objectAt(body, "output", 1, "content", 0).logprobs],
  [
    "#19 logprobsFilled",
    "top_logprobs without bytes",
    (body) => {
      objectAt(body, "output", 1, "content", 0, "logprobs", 0).top_logprobs = [
        { token: "Hi", logprob: -0.5, bytes: [] },
      ];
      delete objectAt(body, "output", 1, "content", 0, "logprobs", 0, "top_logprobs", 0).bytes;
    },
  ],
];

/** Mutations that the schema already refuses, although a rule refuses them, too. */
const ALSO_SCHEMA = new Set(["top_logprobs without bytes"]);

describe("checkResponse", () => {
  test("accepts completed, open, incomplete, failed and cancelled responses", () => {
    checkResponse(goodResponse());
    checkResponse(goodResponse({ usage: null }));
    checkResponse(openResponse());
    checkResponse(openResponse({ status: "queued" }));
    checkResponse(openResponse({ status: "cancelled", output: goodItems().slice(0, 1) }));
    checkResponse(openResponse({ status: "failed", error: error() }));
    const cutOff = { ...goodItems()[1], status: "incomplete" };
    checkResponse(goodResponse({ ...incomplete({ reason: "max_output_tokens" }), output: [cutOff] }));
  });

  test.each(MUTATIONS)("%s: %s", (rule, what, mutate) => {
    const body = goodResponse();
    mutate(body);
    const found = responseViolations(body);
    expect(found).not.toEqual([]);
    if (!ALSO_SCHEMA.has(what)) expect(found.map((line) => line.split(":")[0])).toContain(rule);
    expect(() => checkResponse(body)).toThrow();
  });

  const KEYS = Object.keys(goodResponse()).filter((key) => key !== "user");
  test("has 32 keys, each required", () => {
    expect(KEYS).toHaveLength(32);
    for (const key of KEYS) {
      const body = goodResponse();
      delete body[key];
      expect(responseViolations(body).join(), key).toContain(key);
    }
  });

  test("every rule is broken by some mutation", () => {
    const broken = new Set(MUTATIONS.map(([rule]) => rule));
    expect(RESPONSE_RULES.map(ruleLabel).filter((label) => !broken.has(label))).toEqual([]);
  });

  test("names every violation, not only the first", () => {
    const body = goodResponse({ temperature: null, completed_at: null });
    expect(responseViolations(body)).toHaveLength(2);
  });
});

describe("echoViolations", () => {
  const request = {
    model: "alias",
    temperature: 1,
    metadata: {},
    tool_choice: "auto",
    max_tool_calls: null,
    tools: [{ type: "function", name: "weather", strict: null }],
    text: { format: { type: "text" } },
  };

  test("accepts values that the server fills in", () => {
    expect(echoViolations(request, checkResponse(goodResponse()))).toEqual([]);
  });

  test.each<[string, JsonObject]>([
    ["temperature", { temperature: 0.5 }],
    ["metadata", { metadata: { a: "b" } }],
    ["tool_choice", { tool_choice: "required" }],
    ["text.format", { text: { format: { type: "json_object" } } }],
    ["reasoning.effort", { reasoning: { effort: "low" } }],
    ["the number of tools", { tools: [] }],
    ["tools[0]", { tools: [{ type: "function", name: "other" }] }],
  ])("reports a different %s", (place, changes) => {
    const found = echoViolations({ ...request, ...changes }, checkResponse(goodResponse()));
    expect(found).toEqual([expect.stringContaining(`#21 echo: ${place} was`)]);
  });
});

function usageDetails(body: JsonObject): JsonObject {
  return objectAt(body, "usage", "input_tokens_details");
}

function error(): JsonObject {
  return { code: "server_error", message: "The model went away." };
}

function incomplete(details: JsonObject): JsonObject {
  return { status: "incomplete", completed_at: null, incomplete_details: details };
}
