import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { installedPython } from "./installed.ts";

/** The real Python clients in front of the gateway, as their users have them. */

const PACKAGES = ["openai==3.54.0", "openai-agents==0.24.0", "websockets==16.1.1"];

let python: string;
let vllm: SimulatorServer;
let worker: WorkerdProcess;
beforeAll(async () => {
  python = await installedPython("python", ...PACKAGES);
  vllm = await serveSimulator();
  worker = await startWorkerd({
    VLLM_BASE_URL: `${vllm.url}/v1`,
    ALLOW_ANONYMOUS: "true",
    MODEL_ALIASES: JSON.stringify({ "gpt-oss-compact": "simulator-gpt-oss" }),
    ENCRYPTION_KEYS: `k1:${Buffer.alloc(32, 7).toString("base64")}`,
  });
});
afterAll(async () => {
  await worker.close();
  await vllm.close();
});

/** What a script prints. */
async function run(script: string, model: string): Promise<Record<string, unknown>> {
  const file = fileURLToPath(new URL(`python/${script}`, import.meta.url));
  const { stdout } = await promisify(execFile)(python, [file, `${worker.url}/v1`, model]);
  return JSON.parse(stdout);
}

describe.each(["simulator", "simulator-gpt-oss"])("%s", (model) => {
  it("talks with openai-python over a socket, counts and compacts", async () => {
    const said = await run("openai_client.py", model);
    expect(said).toMatchObject({
      socket: ["You said: The first word is walrus.", "You said: And the second?"],
      compacted: ["message", "message", "compaction"],
      answer: "You said: Go on.",
    });
    const [counted, used] = said.counted as number[];
    expect(counted).toBe(used);
  });

  it("works for the Agents SDK over sockets, for its compaction session, and for its deferred tools", async () => {
    const { socket, answer, kept, found } = await run("agents_sdk.py", model);
    const told = "The tool get_weather returned: sunny in city";
    expect(socket).toEqual([told, told, told, told]);
    expect(answer).toBe(told);
    expect(kept).toContain("compaction");
    expect(found).toBe("The tool deep_weather returned: waves in city");
  });
});
