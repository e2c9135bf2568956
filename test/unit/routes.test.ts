import { expect, it } from "vitest";
import app from "../../src/http/app.ts";

it("all routes are such that Hono's fast router knows them", async () => {
  expect((await app.request("/health", undefined, {})).status).toBe(200);
  expect(app.router.name).toBe("SmartRouter + RegExpRouter");
});
