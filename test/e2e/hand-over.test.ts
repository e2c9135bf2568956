import { spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { beginLoad } from "../crash/hand-over-load.ts";
import { begin, cleanUp, newFolder, run, type Served, start, workerdsOf } from "./serve-support.ts";
import { eventually } from "./support.ts";

/** A process that takes the place of another one under `serve`, while both get requests (docs/self-hosting.md). */

let vllm: SimulatorServer;
beforeAll(async () => {
  vllm = await serveSimulator();
});
afterAll(() => vllm.close());
afterEach(cleanUp);

const least = () => ({ VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", STATE_DIRECTORY: newFolder() });

const SERVES = "Another process serves";
const HAS_ENDED = "The previous process has ended.";

/** The number of times that a text is in the output. */
const times = ({ output }: Served, what: string) => output().split(what).length - 1;

async function created(url: string, what: string, body: object): Promise<{ id: string; status: string }> {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/${what}`, { method: "POST", headers, body: JSON.stringify(body) });
  return (await answer.json()) as { id: string; status: string };
}

const create = (url: string, body: object) => created(url, "responses", body);

/** Waits until the model was asked with this text. */
const untilAsked = (text: string) =>
  eventually(() => vllm.simulator.requests.some(({ body }) => JSON.stringify(body)?.includes(text)), 30_000);

async function stop(served: Served): Promise<number | null> {
  served.child.kill("SIGTERM");
  return served.exited;
}

describe("another process that takes the place of the serving one", () => {
  it("loses no request and no byte: stored, in the background, in conversations", async () => {
    const served = await start(least());
    const load = beginLoad({ url: served.url, streams: 8, words: 60, wordsPerSecond: 20, rate: 20 });
    await eventually(() => load.openStreams() === 8, 30_000);
    served.child.kill("SIGHUP");
    await eventually(() => times(served, SERVES) === 1, 30_000);
    // The predecessor's streams continue in the predecessor.
    expect(times(served, HAS_ENDED)).toBe(0);
    const { failures, requests } = await load.finish();
    expect(failures).toEqual([]);
    expect(requests).toBeGreaterThan(0);
    await eventually(() => times(served, HAS_ENDED) === 1, 30_000);
    expect(await stop(served)).toBe(0);
  }, 120_000);

  it("starts by `reload`, again and again, and reads changes", async () => {
    const variables = least();
    const file = join(newFolder(), "aliases");
    writeFileSync(file, '{"one":"simulator"}');
    const served = await start({ ...variables, MODEL_ALIASES_FILE: file });
    const statusOf = async (model: string) => (await create(served.url, { model, input: "Hello!" })).status;
    expect(await statusOf("one")).toBe("completed");
    for (const name of ["two", "three"]) {
      writeFileSync(file, JSON.stringify({ [name]: "simulator" }));
      expect(await run({ STATE_DIRECTORY: variables.STATE_DIRECTORY }, "reload")).toEqual([
        0,
        "Another process serves.\n",
      ]);
      expect(await statusOf(name)).toBe("completed");
    }
    writeFileSync(file, "nonsense");
    const [code, output] = await run({ STATE_DIRECTORY: variables.STATE_DIRECTORY }, "reload");
    expect([code, output]).toEqual([1, expect.stringContaining("MODEL_ALIASES")]);
    expect(await statusOf("three")).toBe("completed");
    expect(await stop(served)).toBe(0);
    const nobody = await run({ STATE_DIRECTORY: variables.STATE_DIRECTORY }, "reload");
    expect(nobody).toEqual([1, expect.stringContaining("Nothing serves the data folder")]);
  }, 120_000);

  it("starts as soon as the first one serves, if it was requested during its start", async () => {
    const served = begin(least());
    // The program handles the signal from some moment of its start on: its bit is the first.
    await eventually(() =>
      /SigCgt:\s+\w+[13579bdf]\n/.test(readFileSync(`/proc/${served.child.pid}/status`, "latin1")),
    );
    served.child.kill("SIGHUP");
    await eventually(() => times(served, SERVES) === 1, 60_000);
    expect(await stop(served)).toBe(0);
  }, 120_000);

  it("does not keep `serve` from its end while it waits for a predecessor that has a background run", async () => {
    const served = await start({ ...least(), STOP_TIMEOUT_MS: "600000" });
    await create(served.url, { model: "simulator?tps=1&words=600", input: "Go on.", background: true });
    served.child.kill("SIGHUP");
    await eventually(() => times(served, SERVES) === 1, 30_000);
    served.child.kill("SIGHUP");
    expect(await stop(served)).toBe(0);
    expect(served.output()).toContain("The previous process was stopped with unfinished work.");
  });

  it("has a configuration file that changed while it started", async () => {
    const file = join(newFolder(), "edge.json");
    const named = (alias: string) => JSON.stringify({ model_aliases: { [alias]: "simulator" } });
    writeFileSync(file, named("one"));
    const served = await start({ ...least(), CONFIG_FILE: file });
    served.child.kill("SIGHUP");
    const successor = await eventually(() => workerdsOf(served)[1], 30_000);
    process.kill(successor, "SIGSTOP");
    writeFileSync(file, named("two"));
    await eventually(() => times(served, "has changed, and was applied") === 1, 30_000);
    expect(times(served, SERVES)).toBe(0);
    process.kill(successor, "SIGCONT");
    await eventually(() => times(served, SERVES) === 1, 30_000);
    for (const [model, status] of [
      ["two", "completed"],
      ["one", undefined],
    ] as const) {
      expect((await create(served.url, { model, input: "Hello!" })).status).toBe(status);
    }
    expect(await stop(served)).toBe(0);
  });

  it("serves a conversation after the turn that its predecessor has in it, also if a third one is requested meanwhile", async () => {
    const served = await start(least());
    const { id: conversation } = await created(served.url, "conversations", {});
    const slow = { model: "simulator?words=40&tps=10", input: "Count.", conversation };
    const first = create(served.url, slow);
    await untilAsked("Count.");
    served.child.kill("SIGHUP");
    await eventually(() => times(served, SERVES) === 1, 30_000);
    served.child.kill("SIGHUP");
    const next = await create(served.url, { model: "simulator", input: "Hello!", conversation });
    expect([(await first).status, next.status]).toEqual(["completed", "completed"]);
    await eventually(() => times(served, SERVES) === 2, 30_000);
    expect(await stop(served)).toBe(0);
  });

  it("ends with its predecessor as soon as the turns of both have ended", async () => {
    // Whoever waits for this time outlasts the test.
    const served = await start({ ...least(), STOP_TIMEOUT_MS: "600000" });
    const turns = [create(served.url, { model: "simulator?words=40&tps=10", input: "Wait." })];
    await untilAsked("Wait.");
    served.child.kill("SIGHUP");
    await eventually(() => times(served, SERVES) === 1, 30_000);
    turns.push(create(served.url, { model: "simulator?words=10&tps=10", input: "Wait again." }));
    await untilAsked("Wait again.");
    expect(await stop(served)).toBe(0);
    expect((await Promise.all(turns)).map(({ status }) => status)).toEqual(["completed", "completed"]);
  });

  it("resumes runs that its predecessor had no time to end", async () => {
    const served = await start({ ...least(), HANDOVER_TIMEOUT_MS: "0" });
    const run = { model: "simulator?words=60&tps=10", input: "Go on.", background: true };
    const { id } = await create(served.url, run);
    served.child.kill("SIGHUP");
    await eventually(() => served.output().includes("The previous process was stopped"), 30_000);
    const read = async () => (await (await fetch(`${served.url}/v1/responses/${id}`)).json()) as { status: string };
    await eventually(async () => (await read()).status === "completed", 30_000);
    expect(await stop(served)).toBe(0);
  }, 120_000);
});

/** The service manager's side of systemd's protocol: it prints every message that arrives. */
const LISTENER = `
import socket, sys
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(sys.argv[1])
while True:
    message = manager.recv(4096).decode().replace("\\n", " ").strip()
    # By this \`systemd-notify\` finds out that the one before it was read.
    if message != "BARRIER=1":
        print(message, flush=True)
`;

const mayNotify = ["systemd-notify", "python3"].every((name) => spawnSync(name, ["--version"]).status === 0);
if (!mayNotify) console.log("Not shown here: this machine has no systemd-notify, or no python3.");

describe.runIf(mayNotify)("under systemd", () => {
  it("reports readiness, life signs, reloads and the stop", async () => {
    const path = join(newFolder(), "notify");
    const listener = spawn("python3", ["-c", LISTENER, path], { stdio: ["ignore", "pipe", "inherit"] });
    let heard = "";
    listener.stdout.on("data", (text) => (heard += String(text)));
    try {
      await eventually(() => existsSync(path));
      const served = await start({ ...least(), NOTIFY_SOCKET: path, WATCHDOG_USEC: "1000000" });
      const ready = `READY=1 MAINPID=${served.child.pid}\n`;
      await eventually(() => heard.includes(ready) && heard.includes("WATCHDOG=1\n"), 30_000);
      heard = "";
      served.child.kill("SIGHUP");
      await eventually(() => heard.includes(ready), 30_000);
      expect(heard.replaceAll("WATCHDOG=1\n", "")).toMatch(/^RELOADING=1 MONOTONIC_USEC=\d+\nREADY=1 /);
      expect(await stop(served)).toBe(0);
      await eventually(() => heard.includes("STOPPING=1\n"), 30_000);
    } finally {
      listener.kill();
    }
  }, 120_000);
});
