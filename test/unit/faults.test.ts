import { describe, expect, it, vi } from "vitest";
import { toShownError } from "../../src/api/faults.ts";

const place = { requestId: "one", path: "/v1/responses/:id", hasClientLeft: false };

describe("an unexpected error", () => {
  it("of an object that is not reachable is a 503 with a time to retry", () => {
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

  it("is otherwise a 500 without details", () => {
    vi.spyOn(console, "error").mockImplementationOnce(() => {});
    expect(toShownError(new Error("sekret"), place).toFields()).toMatchObject({ status: 500, code: "server_error" });
  });
});
