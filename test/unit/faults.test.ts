import { describe, expect, it, vi } from "vitest";
import { toShownError } from "../../src/api/faults.ts";

const place = { requestId: "one", path: "/v1/responses/:id", hasClientLeft: false };

describe("an unexpected error", () => {
  it("of an object that is not reached just now is a 503 that says when to try again", () => {
    vi.spyOn(console, "error").mockImplementationOnce(() => {});
    const thrown = Object.assign(new Error("sekret on 10.0.0.1: Connection refused"), { retryable: true });
    const shown = toShownError(thrown, place);
    expect(shown.toFields()).toMatchObject({
      status: 503,
      code: "storage_unavailable",
      headers: { "retry-after": "5" },
    });
    expect(shown.message).not.toContain("sekret");
  });

  it("is else a 500 that says nothing of it", () => {
    vi.spyOn(console, "error").mockImplementationOnce(() => {});
    expect(toShownError(new Error("sekret"), place).toFields()).toMatchObject({ status: 500, code: "server_error" });
  });
});
