import { mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { sha256 } from "./key-support.ts";
import { cleanUp, newFolder, run, start } from "./serve-support.ts";
import { eventually } from "./support.ts";

/** `CONFIG_FILE`: a configuration that changes while the server runs. */

let [a, b]: SimulatorServer[] = [];
beforeAll(async () => {
  [a, b] = await Promise.all([serveSimulator(), serveSimulator()]);
});
afterAll(() => Promise.all([a?.close(), b?.close()]));
afterEach(cleanUp);

/** A folder in the form of a mounted ConfigMap of Kubernetes: a link then leads to another folder with the new file. */
function mountedFile(): { path: string; put(text: string): void } {
  const folder = newFolder();
  let version = 0;
  const put = (text: string) => {
    version += 1;
    mkdirSync(join(folder, `..v${version}`));
    writeFileSync(join(folder, `..v${version}`, "edge.yaml"), text);
    symlinkSync(`..v${version}`, join(folder, "..next"));
    renameSync(join(folder, "..next"), join(folder, "..data"));
  };
  symlinkSync(join("..data", "edge.yaml"), join(folder, "edge.yaml"));
  return { path: join(folder, "edge.yaml"), put };
}

const asked = (server: SimulatorServer | undefined) =>
  server?.simulator.requests.filter(({ path }) => path.endsWith("/completions")).length ?? 0;

describe("a file that changes during requests", () => {
  it("takes effect without losing a request; an invalid one has no effect, and is reported by its lines", async () => {
    const { path, put } = mountedFile();
    const server = (name: string, { url }: { url: string } = { url: "" }) => `  ${name}:\n    url: ${url}/v1\n`;
    put(`# One server.\nupstreams:\n${server("a", a)}allow_anonymous: true\n`);
    const served = await start({ CONFIG_FILE: path, STATE_DIRECTORY: newFolder() });
    const create = async (body: object) => {
      const headers = { "content-type": "application/json" };
      const sent = { method: "POST", headers, body: JSON.stringify({ input: "Hello!", ...body }) };
      const answer = await fetch(`${served.url}/v1/responses`, sent);
      return { status: answer.status, body: (await answer.json()) as { model?: string } };
    };
    const statuses: number[] = [];
    let isOver = false;
    const traffic = Promise.all(
      Array.from({ length: 4 }, async () => {
        while (!isOver) statuses.push((await create({ model: "simulator" })).status);
      }),
    );
    const inForce = (times: number) =>
      eventually(() => served.output().split("has changed, and was applied").length > times);
    await eventually(() => statuses.length > 8);
    expect(asked(b)).toBe(0);

    put(`upstreams:\n${server("a", a)}${server("b", b)}\nallow_anonymous: true\nmodel_aliases:\n  best: simulator\n`);
    await inForce(1);
    await eventually(() => asked(b) > 0);
    expect(await create({ model: "best" })).toMatchObject({ status: 200, body: { model: "best" } });

    put(`upstreams:\n${server("b", b)}allow_anonymous: true\n`);
    await inForce(2);
    expect(served.output()).toContain("was applied: MODEL_ALIASES (best added); UPSTREAMS (b added).");
    expect(served.output()).toContain("was applied: MODEL_ALIASES (best removed); UPSTREAMS (a removed).");
    // The running requests end at their servers.
    const before = statuses.length;
    await eventually(() => statuses.length > before + 8);
    // A server lists its last 1,000 requests only.
    for (const server of [a, b]) server?.simulator.clear();
    await eventually(() => asked(b) > 8);
    expect(asked(a)).toBe(0);
    expect((await create({ model: "best" })).status).toBe(400);

    put(`upstreams:\n  b:\n    url: nowhere\nmodle_aliases: {}\nupstream_failover_ms: soon\nallow_anonymous: true\n`);
    await eventually(() => served.output().includes("the configuration stays as it was"));
    const told = served.output();
    expect(told).toContain(`${path}:1: upstreams: server 1: 'url': expected a URL that begins with http`);
    expect(told).toContain(`${path}:4: unknown variable 'modle_aliases'. Do you mean 'model_aliases'?`);
    expect(told).toContain(`${path}:5: upstream_failover_ms: expected a whole number`);
    // None of these is a change of the process.
    expect(told).not.toContain("Another process serves");
    const after = statuses.length;
    await eventually(() => statuses.length > after + 8);
    isOver = true;
    await traffic;
    expect(new Set(statuses)).toEqual(new Set([200]));
    served.child.kill("SIGTERM");
    expect(await served.exited).toBe(0);
  });
});

describe("a file that loses most of its keys, as one that is half written", () => {
  it("waits for a second look, or for a reload", async () => {
    const path = join(newFolder(), "edge.yaml");
    const names = ["one", "two", "three", "four", "five"];
    const entries = names.map((name) => `  - ${name}:${sha256(`key-of-${name}`)}\n`);
    const head = `upstreams:\n  a:\n    url: ${a?.url}/v1\napi_keys:\n`;
    writeFileSync(path, head + entries.join(""));
    const served = await start({ CONFIG_FILE: path, STATE_DIRECTORY: newFolder() });
    const status = async (name: string) => {
      const headers = { authorization: `Bearer key-of-${name}` };
      return (await fetch(`${served.url}/v1/models`, { headers })).status;
    };
    const said = (text: string) => eventually(() => served.output().includes(text));
    writeFileSync(path, head + entries.slice(0, 1).join(""));
    await said("The configuration file no longer has 4 of 5 keys.");
    expect(await status("five")).toBe(200);
    served.child.kill("SIGHUP");
    await said("Another process serves (SIGHUP)");
    await eventually(async () => (await status("five")) === 401);
    expect(await status("one")).toBe(200);
    writeFileSync(path, head + entries.join(""));
    await said("has changed, and was applied");
    expect(await status("five")).toBe(200);
    writeFileSync(path, head + entries.slice(0, 2).join(""));
    await said("The configuration file no longer has 3 of 5 keys.");
    await eventually(async () => (await status("five")) === 401, 60_000);
    await eventually(() => served.output().split("has changed, and was applied").length === 3);
    const five = names.slice(1).map((name) => `${name} added`);
    expect(served.output()).toContain(`was applied: API_KEYS (${five.join(", ")}).`);
    expect(served.output()).toContain("The new process has another configuration: API_KEYS (two removed, ");
    expect(served.output()).not.toContain(sha256("key-of-five"));
    served.child.kill("SIGTERM");
    expect(await served.exited).toBe(0);
  });
});

/** The output of `check` about a server that answers. */
const RIGHT = /^here: answers as vLLM, .+\nThe configuration is right\.\n$/;

describe("`check`", () => {
  it("names every error of the file by its line, also one of YAML itself", async () => {
    const path = join(newFolder(), "edge.yaml");
    writeFileSync(path, "port: here\nvllm_base_url: nowhere\nUPSTREAMS: []\nallow_anonymous: true\n");
    const [code, output] = await run({ CONFIG_FILE: path, LOG_FORMAT: "text" }, "check");
    expect(code).toBe(78);
    for (const line of [1, 2, 3]) expect(output).toContain(`${path}:${line}: `);
    writeFileSync(path, "port: 1\nport: 2\n");
    const [, again] = await run({ CONFIG_FILE: path, LOG_FORMAT: "text" }, "check");
    // The variables of such a file are unknown, also the missing ones.
    expect(again).toBe(`The configuration has errors:\n  ${path}:2: Map keys must be unique\n`);
  });

  it("names every mistake within a variable by its place, and no value", async () => {
    const path = join(newFolder(), "edge.yaml");
    const lines = [
      "upstreams: { a: { url: sekret, weight: -1, wieght: 1 }, b: { url: http://b/v1, discover: sekret } }",
      "routes: { chat: { to: [{ model: m, weight: sekret }, { mdl: b }], fallbacks: 7 }, other: 5 }",
      "model_prices: { m: { input: -1, output: sekret } }",
      "allow_anonymous: true",
    ];
    writeFileSync(path, lines.join("\n"));
    const [code, output] = await run({ CONFIG_FILE: path, LOG_FORMAT: "text" }, "check");
    expect(code).toBe(78);
    const places = output
      .split("\n")
      .flatMap((line) => /:\d+: (\w+: (?:server \d+: )?(?:'[^']+')?)/.exec(line)?.[1] ?? []);
    expect(places.toSorted()).toEqual([
      "model_prices: 'm.input'",
      "model_prices: 'm.output'",
      "routes: 'chat.fallbacks'",
      "routes: 'chat.to[0].weight'",
      "routes: 'chat.to[1].mdl'",
      "routes: 'chat.to[1].model'",
      "routes: 'other'",
      "upstreams: server 1: 'url'",
      "upstreams: server 1: 'weight'",
      "upstreams: server 1: 'wieght'",
      "upstreams: server 2: 'discover'",
    ]);
    expect(output).not.toContain("sekret");
  });

  it("reads TOML, and gives the lines of its errors", async () => {
    const path = join(newFolder(), "edge.toml");
    const text = `allow_anonymous = true\nport = 0\n\n[upstreams.here]\nurl = "${a?.url}/v1"\n\n[routes]\nbest = "simulator"\n`;
    const check = async (written: string) => {
      writeFileSync(path, written);
      return run({ CONFIG_FILE: path, LOG_FORMAT: "text" }, "check");
    };
    expect(await check(text)).toEqual([0, expect.stringMatching(RIGHT)]);
    const [, wrong] = await check(`${text}other = 5\n\n[modle_aliases]\nport = 1\n`);
    expect(wrong).toContain(`${path}:7: routes: 'other': `);
    expect(wrong).toContain(`${path}:11: unknown variable 'modle_aliases'. Do you mean 'model_aliases'?`);
    const [code, unreadable] = await check(`${text}other =\n`);
    expect(code).toBe(78);
    expect(unreadable).toMatch(/^The configuration has errors:\n {2}.+edge\.toml:\d+: .+\n$/);
  });

  it("accepts a file with all needed variables, which override the environment", async () => {
    const path = join(newFolder(), "edge.yaml");
    writeFileSync(path, `upstreams: [{ name: here, url: ${a?.url}/v1 }]\nallow_anonymous: true\nport: 0\n`);
    const [code, output] = await run({ CONFIG_FILE: path, VLLM_BASE_URL: "http://127.0.0.1:1/v1" }, "check");
    expect(output).toMatch(RIGHT);
    expect(code).toBe(0);
  });
});
