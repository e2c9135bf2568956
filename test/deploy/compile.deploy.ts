import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freePort, root } from "../workerd/tools.ts";
import { itServes } from "./facts.ts";
import { startProgram } from "./program.ts";

/** The single executable, with the lock of its data folder from docs/self-hosting.md. */
describe("the compiled executable", () => {
  const data = mkdtempSync(join(tmpdir(), "responses-edge-"));
  const locked = (port: number) => [
    ...["--no-fork", "--exclusive", "--nonblock", "--conflict-exit-code", "75", join(data, "single-file.lock")],
    ...[join(root, "dist/responses-edge"), `--directory-path=disk=${data}`, `--socket-addr=http0=127.0.0.1:${port}`],
  ];
  beforeAll(() => {
    execFileSync(process.execPath, [join(root, "scripts/compile.ts")], { stdio: ["ignore", "ignore", "inherit"] });
  });
  afterAll(() => rmSync(data, { recursive: true, force: true }));

  const start = async (variables: Record<string, string>) => {
    const port = await freePort();
    const args = locked(port);
    return startProgram({ command: "flock", args, environment: variables, url: `http://127.0.0.1:${port}` });
  };
  itServes(start);

  it("refuses to serve without keys", async () => {
    const { url, stop } = await start({ VLLM_BASE_URL: "http://127.0.0.1:9/v1" });
    try {
      const answer = await fetch(`${url}/v1/models`);
      expect([answer.status, await answer.json()]).toMatchObject([401, { error: { type: "invalid_request_error" } }]);
    } finally {
      await stop();
    }
  });

  it("has its data folder exclusively", async () => {
    const { stop } = await start({ VLLM_BASE_URL: "http://127.0.0.1:9/v1" });
    try {
      expect(spawnSync("flock", locked(await freePort())).status).toBe(75);
    } finally {
      await stop();
    }
  });
});
