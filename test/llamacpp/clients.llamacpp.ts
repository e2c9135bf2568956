import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { Codex, type CodexRun } from "../clients/codex.ts";
import { installedCodex, installedPython } from "../clients/installed.ts";
import { callsOf, type Subject } from "../vllm/facts/subject.ts";
import { saying } from "../vllm/speech.ts";
import { factsAboutLlamacpp } from "./real-server.ts";

// The real clients of npm run test:clients, in front of a real llama.cpp.

const CODEX = "0.169.0";
const PACKAGES = ["openai==3.54.0", "openai-agents==0.24.0", "websockets==16.1.1"];

/** The maximum time of a test: agents' prompts are read on one core, with a token a byte. */
const FACT_MS = 300_000;

const PATCH = "*** Begin Patch\n*** Add File: greeting.txt\n+Hello, *world*!\n*** End Patch";
const WEATHER = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const MAKE = { cmd: "echo made > made.txt && cat made.txt" };

factsAboutLlamacpp("long", (subject) => {
  describe("Codex", () => codex(subject));
  describe("openai-python", () => python(subject));
  describe("openai-node", () => node(subject));
});

function codex(subject: () => Subject): void {
  let binary: string;
  let agent: Codex | undefined;
  beforeAll(async () => {
    binary = await installedCodex(CODEX);
  }, 600_000);
  afterEach(() => agent?.remove());

  function start(webSockets: boolean): Codex {
    const { gateway, server } = subject();
    agent = new Codex(
      binary,
      `model = "${server.model}"
model_provider = "edge"
[model_providers.edge]
name = "edge"
base_url = "${gateway.url}/v1"
wire_api = "responses"
supports_websockets = ${webSockets}
[model_providers.edge.auth]
command = "echo"
args = ["any"]
`,
    );
    return agent;
  }

  function calling(name: string, given: object): string {
    return saying("chat", { calls: [{ name, arguments: JSON.stringify(given) }] });
  }

  function expectCompleted({ exitCode, events, log }: CodexRun): void {
    expect(exitCode, log + JSON.stringify(events)).toBe(0);
    const types = events.map(({ type }) => type);
    expect(types).toContain("turn.completed");
    expect(types).not.toContain("error");
  }

  describe.each([
    ["HTTP", false],
    ["a WebSocket", true],
  ] as const)("over %s", (_, webSockets) => {
    it("answers", { timeout: FACT_MS }, async () => {
      const run = await start(webSockets).exec("Hello!");
      expectCompleted(run);
      expect(run.answer.trim()).toBe("You said: Hello!");
    });

    it("runs a command, and reads its output", { timeout: FACT_MS }, async () => {
      const made = start(webSockets);
      const run = await made.exec(calling("exec_command", MAKE));
      expectCompleted(run);
      expect(made.file("made.txt")).toBe("made\n");
      expect(run.answer).toContain("The tool returned:");
    });

    it("applies a patch", { timeout: FACT_MS }, async () => {
      const patched = start(webSockets);
      const run = await patched.exec(calling("apply_patch", { input: PATCH }));
      expectCompleted(run);
      expect(patched.file("greeting.txt")).toBe("Hello, *world*!\n");
    });

    it("resumes a session", { timeout: FACT_MS }, async () => {
      const resumed = start(webSockets);
      expectCompleted(await resumed.exec("The first word is walrus."));
      const run = await resumed.exec("resume", "--last", "And the second?");
      expectCompleted(run);
      expect(run.answer.trim()).toBe("You said: And the second?");
    });
  });
}

function python(subject: () => Subject): void {
  let program: string;
  beforeAll(async () => {
    program = await installedPython("python", ...PACKAGES);
  }, 600_000);

  /** The output of a script of test/clients. */
  async function run(script: string): Promise<Record<string, unknown>> {
    const { gateway, server } = subject();
    const file = fileURLToPath(new URL(`../clients/python/${script}`, import.meta.url));
    const { stdout } = await promisify(execFile)(program, [file, `${gateway.url}/v1`, server.model]);
    return JSON.parse(stdout) as Record<string, unknown>;
  }

  it("works over a WebSocket, counts and compacts", { timeout: FACT_MS }, async () => {
    const said = await run("openai_client.py");
    expect(said).toMatchObject({
      // The template leaves out ` word`, a token of its own.
      socket: ["You said: The first is walrus.", "You said: And the second?"],
      compacted: ["message", "message", "compaction"],
      answer: "You said: Go on.",
    });
    const [counted, used] = said.counted as number[];
    expect(counted).toBe(used);
  });
}

function node(subject: () => Subject): void {
  it("streams a call by its helper, and continues from the result", { timeout: FACT_MS }, async () => {
    const { gateway, server } = subject();
    const { responses } = gateway.openai;
    const tools = [{ type: "function" as const, name: "get_weather", parameters: WEATHER, strict: true }];
    const asked = saying("chat", { calls: [{ name: "get_weather", arguments: '{"city": "Paris"}' }] });
    const first = await responses.stream({ model: server.model, input: asked, tools }).finalResponse();
    const [call] = callsOf(first);
    expect(call).toMatchObject({ name: "get_weather", arguments: '{"city": "Paris"}' });
    const output = { type: "function_call_output" as const, call_id: call?.call_id ?? "", output: "sunny" };
    const next = { model: server.model, previous_response_id: first.id, input: [output], tools };
    const answer = await responses.stream(next).finalResponse();
    expect(answer.output_text.trim()).toBe("The tool returned: sunny");
  });
}
