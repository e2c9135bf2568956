import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { cleanUp, newFolder, run } from "./serve-support.ts";

/**
 * `serve` as an instance of a cluster: the configurations that it refuses. `npm run test:cluster` tests a running
 * cluster.
 */

afterEach(cleanUp);

const LEAST = { VLLM_BASE_URL: "http://127.0.0.1:1/v1", ALLOW_ANONYMOUS: "true", LOG_FORMAT: "text" };
const KEY = "0123456789abcdef0123456789abcdef";
const CLUSTER = { CLUSTER_BUCKET: "s3://bucket/edge", CLUSTER_ADDRESS: "127.0.0.1:7000", CLUSTER_KEY: KEY };

/** The variables that `serve` reports as wrong. */
async function faultsOf(variables: Record<string, string>): Promise<string[]> {
  const [code, output] = await run({ ...LEAST, STATE_DIRECTORY: newFolder(), ...variables });
  expect(code).toBe(78);
  expect(output).not.toContain("sekret");
  return output.split("\n").flatMap((line) => /^ {2}(\w+): /.exec(line)?.[1] ?? []);
}

describe("the configuration of a cluster", () => {
  it("is complete or absent, and no value is printed", async () => {
    expect(await faultsOf({ CLUSTER_ADDRESS: "127.0.0.1:7000" })).toEqual(["CLUSTER_BUCKET"]);
    expect(await faultsOf({ CLUSTER_BUCKET: "s3://bucket" })).toEqual(["CLUSTER_ADDRESS", "CLUSTER_KEY"]);
    const wrong = {
      ...{ CLUSTER_BUCKET: "https://sekret", CLUSTER_ADDRESS: "sekret:99999", CLUSTER_ADVERTISE: "sekret/1" },
      CLUSTER_KEY: "sekret, and too short",
    };
    expect(await faultsOf(wrong)).toEqual(["CLUSTER_BUCKET", "CLUSTER_ADDRESS", "CLUSTER_ADVERTISE", "CLUSTER_KEY"]);
  });

  it("names an address that others reach if it listens on every address", async () => {
    expect(await faultsOf({ ...CLUSTER, CLUSTER_ADDRESS: "0.0.0.0:7000" })).toEqual(["CLUSTER_ADVERTISE"]);
  });
});

describe("a data folder", () => {
  /** A folder in the form that workerd leaves. */
  function folderOf(...files: string[]): string {
    const folder = newFolder();
    mkdirSync(join(folder, "responses-edge-Home"));
    for (const file of files) writeFileSync(join(folder, "responses-edge-Home", file), "");
    return folder;
  }

  it("of an instance of a cluster is not served without the cluster, because its data is old", async () => {
    const [code, output] = await run({ ...LEAST, STATE_DIRECTORY: folderOf(".cluster") });
    expect(code).toBe(78);
    expect(output).toContain("the data is in its bucket");
  });

  it("of a single server is not used as a cache, which would be overwritten", async () => {
    const [code, output] = await run({ ...LEAST, ...CLUSTER, STATE_DIRECTORY: folderOf(`${"a".repeat(64)}.sqlite`) });
    expect(code).toBe(78);
    expect(output).toContain("which a cluster cannot use");
  });
});
