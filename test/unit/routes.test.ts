import { expect, it } from "vitest";
import app from "../../src/http/app.ts";

it("all routes are supported by Hono's fast router", async () => {
  expect((await app.request("/health", undefined, {})).status).toBe(200);
  expect(app.router.name).toBe("SmartRouter + RegExpRouter");
});
