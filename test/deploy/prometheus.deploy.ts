import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, it } from "vitest";
import { root } from "../workerd/tools.ts";

/** Checks the alert rules with Prometheus' own tool. PROMTOOL names another binary. */

const promtool = process.env.PROMTOOL ?? "promtool";
const why = spawnSync(promtool, ["--version"]).status === 0 ? undefined : "there is no promtool; PROMTOOL may name one";
if (why !== undefined) console.warn(`SKIPPED: ${why}.`);

it.skipIf(why !== undefined).each([
  ["check", "rules", "rules.yaml"],
  ["test", "rules", "rules.test.yaml"],
])("promtool %s %s %s", (verb, what, file) => {
  const { status, stdout, stderr } = spawnSync(promtool, [verb, what, join(root, "deploy/prometheus", file)]);
  expect({ status, said: `${stdout}${stderr}` }).toMatchObject({ status: 0, said: expect.stringContaining("SUCCESS") });
});
