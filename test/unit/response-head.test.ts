import { newTurnAddress, responseId } from "@responses-edge/responses-api/ids";
import { initialResponse, type ResponseObject } from "@responses-edge/responses-api/response";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { fromStoredHead, toStoredHead } from "../../src/store/home/response-head.ts";
import { codePoint } from "../code-points.ts";

/** The stored form of a response without its output. */

function headOf(change: Partial<ResponseObject> = {}): string {
  const identity = { id: responseId(newTurnAddress()), model: "m", createdAt: 1_795_900_167 };
  const { output: _, ...head } = initialResponse({ model: "m" }, identity);
  return JSON.stringify({ ...head, ...change });
}

describe("the stored head of a response", () => {
  it("is the same again, for any JSON", () => {
    const given = fc.oneof(
      fc.json(),
      fc.jsonValue().map((metadata) => headOf({ metadata: metadata as never })),
      fc.string({ unit: codePoint }).map((instructions) => headOf({ instructions })),
    );
    fc.assert(fc.property(given, (json) => fromStoredHead(toStoredHead(json)) === json));
  });

  it("takes a fifth of the text, where the request has set nothing", () => {
    const usage = {
      ...{ input_tokens: 12, output_tokens: 21, total_tokens: 33 },
      input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
      output_tokens_details: { reasoning_tokens: 0 },
    };
    const json = headOf({ status: "completed", completed_at: 1_795_900_168, usage });
    expect(toStoredHead(json).length).toBeLessThan(json.length / 5);
  });
});
