import { readFileSync } from "node:fs";
import {
  parseConversationId,
  parseFileId,
  parseItemId,
  parseResponseId,
  treeOf,
} from "@responses-edge/responses-api/ids";
import { expect, it } from "vitest";
import { uniqueKeyOf } from "../../cli/serve/workerd.ts";
import { OBJECTS } from "../../src/store/objects/registry.ts";

/**
 * Names under which data is stored. With another name a deployment would have no data (docs/self-hosting.md). Expectations
 * may be added here, never changed.
 */

const settings = readFileSync(new URL("../../wrangler.toml", import.meta.url), "utf8");

it("the Worker's name stays, from which Cloudflare and `wrangler dev` derive the names of its objects' namespaces", () => {
  expect(/^name = (.+)$/m.exec(settings)?.[1]).toBe('"responses-edge"');
});

it("the classes of objects and their bindings stay", () => {
  const classes = Object.entries(OBJECTS).map(([binding, { className }]) => [binding, className] as const);
  expect(Object.fromEntries(classes)).toMatchObject({
    HOME: "Home",
    KEYS: "KeyDirectory",
    QUOTAS: "Quota",
    BOARD: "Board",
    FILE_DIRECTORIES: "FileDirectory",
    FILE_BYTES: "FileBytes",
    VECTOR_STORES: "VectorStore",
    WEBHOOKS: "Webhooks",
    BATCHES: "Batches",
    RESPONSE_INDEXES: "ResponseIndex",
  });
});

it("the unique keys of workerd's namespaces stay, from which the ids of objects are derived", () => {
  const classes = [
    "Home",
    "KeyDirectory",
    "Quota",
    "Board",
    "FileDirectory",
    "FileBytes",
    "VectorStore",
    "Webhooks",
    "Batches",
    "ResponseIndex",
  ];
  expect(classes.map(uniqueKeyOf)).toEqual([
    "responses-edge-Home",
    "responses-edge-KeyDirectory",
    "responses-edge-Quota",
    "responses-edge-Board",
    "responses-edge-FileDirectory",
    "responses-edge-FileBytes",
    "responses-edge-VectorStore",
    "responses-edge-Webhooks",
    "responses-edge-Batches",
    "responses-edge-ResponseIndex",
  ]);
});

it("ids keep the form that names an object's home", () => {
  const alone = { home: "6jnDBPNPFK7Tl97ennX4vg", turn: "RuJRD9A8hL" };
  expect(parseResponseId("resp_6jnDBPNPFK7Tl97ennX4vgRuJRD9A8hL")).toEqual(alone);
  expect(parseConversationId("conv_6jnDBPNPFK7Tl97ennX4vgRuJRD9A8hL")).toEqual(alone);
  expect(parseItemId("msg_6jnDBPNPFK7Tl97ennX4vgRuJRD9A8hLo1A")).toEqual({ ...alone, side: "output", index: 72 });
  expect(treeOf(alone)).toEqual({ home: alone.home, tree: "" });
  expect(parseFileId("file-6jnDBPNPFK7Tl97ennX4vg")).toBe(alone.home);
  const beside = { home: "000000cYo1n1S2AAv1tLHC", turn: "q7RuJRD9A8" };
  expect(parseResponseId("resp_000000cYo1n1S2AAv1tLHCq7RuJRD9A8")).toEqual(beside);
  expect(treeOf(beside)).toEqual({ home: beside.home, tree: "q7" });
});
