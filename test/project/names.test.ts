import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { OBJECT_CLASSES, uniqueKeyOf } from "../../cli/workerd.ts";

/**
 * Names that what is kept is found by: under another one a deployment is empty (docs/upgrades.md). What these tests say may be
 * added to, and never changed. `test/e2e/upgrade.test.ts` shows the same with a data folder of an earlier version.
 */

const settings = readFileSync(new URL("../../wrangler.toml", import.meta.url), "utf8");

it("the Worker's name stays, of which Cloudflare and `wrangler dev` make the names of its objects' namespaces", () => {
  expect(/^name = (.+)$/m.exec(settings)?.[1]).toBe('"responses-edge"');
});

it("the classes of objects and their bindings stay", () => {
  expect(OBJECT_CLASSES).toMatchObject({ HOME: "Home", KEYS: "KeyDirectory", QUOTAS: "Quota", BOARD: "Board" });
  for (const [binding, name] of Object.entries(OBJECT_CLASSES)) {
    expect(settings).toContain(`[exports.${name}]\ntype = "durable-object"\nstorage = "sqlite"\n`);
    expect(settings).toContain(`{ name = "${binding}", class_name = "${name}" }`);
  }
});

it("the unique keys of workerd's namespaces stay, from which the ids of objects are derived", () => {
  expect(["Home", "KeyDirectory", "Quota", "Board"].map(uniqueKeyOf)).toEqual([
    "responses-edge-Home",
    "responses-edge-KeyDirectory",
    "responses-edge-Quota",
    "responses-edge-Board",
  ]);
});
