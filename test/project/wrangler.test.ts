import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

it("a deployment keeps no URL that a request has brought: no traces, and no queries in its logs", () => {
  const settings = readFileSync(new URL("../../wrangler.toml", import.meta.url), "utf8");
  // `enabled` of [observability] turns both on unless they are named.
  expect(settings).toMatch(/^\[observability\]\n(\w.*\n)*redact_query_string = true$/m);
  expect(settings).toMatch(/^\[observability\.traces\]\nenabled = false$/m);
});
