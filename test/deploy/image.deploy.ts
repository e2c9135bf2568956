import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../e2e/support.ts";
import { freePort } from "../workerd/tools.ts";
import { buildImage, IMAGE, podman, podmanSays, whyNoContainers } from "./containers.ts";
import { itServes, type Running } from "./facts.ts";

const why = whyNoContainers();
if (why !== undefined) console.warn(`SKIPPED: ${why}.`);

/** The image runs as in docs/self-hosting.md: it can write only its data and /tmp, and has no privileges. */
const HARDENED = ["--read-only", "--tmpfs=/tmp", "--cap-drop=all", "--security-opt=no-new-privileges"];
const VOLUME = "responses-edge-test-data";
const DATA = `--volume=${VOLUME}:/data`;

describe.skipIf(why !== undefined)("the image", () => {
  const containers = new Set<string>();
  beforeAll(async () => {
    await buildImage();
    await podman("volume", "rm", "--force", VOLUME);
  });
  afterAll(async () => {
    for (const id of containers) await podman("rm", "--force", id);
    await podman("volume", "rm", "--force", VOLUME);
  });

  const optionsOf = (variables: Record<string, string>, port: number) => {
    const given = Object.entries({ ...variables, HOST: "127.0.0.1", PORT: String(port) });
    return [...HARDENED, DATA, ...given.map(([name, value]) => `--env=${name}=${value}`)];
  };

  async function start(variables: Record<string, string>): Promise<Running> {
    const port = await freePort();
    const id = await podmanSays("run", "--detach", ...optionsOf(variables, port), IMAGE);
    containers.add(id);
    await eventually(async () => {
      if ((await podman("healthcheck", "run", id)).code === 0) return true;
      const { stdout, stderr } = await podman("logs", id);
      if ((await podmanSays("inspect", "--format={{.State.Running}}", id)) === "true") return false;
      throw new Error(`The container has ended:\n${stdout}${stderr}`);
    });
    const stop = async () => {
      await podmanSays("stop", "--time=60", id);
      return Number(await podmanSays("wait", id));
    };
    return { url: `http://127.0.0.1:${port}`, stop };
  }

  it("runs as a user other than root, and has no secrets", async () => {
    const [image] = JSON.parse(await podmanSays("image", "inspect", IMAGE)) as [{ Config: Record<string, unknown> }];
    expect(image.Config).toMatchObject({
      User: "65532:65532",
      ExposedPorts: { "8787/tcp": {} },
      Volumes: { "/data": {} },
      StopSignal: "SIGTERM",
      Cmd: ["serve"],
    });
    expect(image.Config.Env).toEqual([
      expect.stringMatching(/^PATH=/),
      "HOST=0.0.0.0",
      "PORT=8787",
      "STATE_DIRECTORY=/data",
      "LOG_FORMAT=json",
    ]);
  });

  itServes(start);

  it("does not start without keys, and names the variables that it needs", async () => {
    const { code, stdout, stderr } = await podman("run", "--rm", ...HARDENED, DATA, IMAGE);
    expect(code).toBe(78);
    expect(stdout + stderr).toMatch(/API_KEYS: needed/);
  });

  it("makes keys", async () => {
    expect(await podmanSays("run", "--rm", ...HARDENED, IMAGE, "create-key", "acme")).toMatch(
      /^ {2}acme:[0-9a-f]{64}$/m,
    );
  });

  it("has its data exclusively: a second container with the same data is refused, and does not affect its health", async () => {
    const variables = { VLLM_BASE_URL: "http://127.0.0.1:9/v1", ALLOW_ANONYMOUS: "true" };
    const { stop } = await start(variables);
    try {
      const port = await freePort();
      const { code, stdout, stderr } = await podman("run", "--rm", ...optionsOf(variables, port), IMAGE);
      expect([code, stdout + stderr]).toEqual([
        75,
        expect.stringMatching(/Another responses-edge(?: \(process \d+\))? uses the data folder/),
      ]);
      expect((await podman("run", "--rm", `--env=PORT=${port}`, IMAGE, "health")).code).toBe(1);
    } finally {
      await stop();
    }
  });
});
