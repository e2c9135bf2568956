import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { connectSamples } from "../../packages/console/src/connect-samples.ts";
import type { Engine } from "../vllm/model-server.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { Codex, type CodexRun } from "./codex.ts";
import { installedCodex } from "./installed.ts";
import { openRecordingProxy, type RecordingProxy } from "./recording-proxy.ts";

/** The real Codex CLI in front of the gateway. The user's text contains the script of the models' output. */

const VERSION = "0.169.0";

/** The user's MCP server, which Codex runs. */
const NOTES_SERVER = fileURLToPath(new URL("notes-server.ts", import.meta.url));

let binary: string;
let vllm: SimulatorServer;
let worker: WorkerdProcess;
beforeAll(async () => {
  binary = await installedCodex(VERSION);
  vllm = await serveSimulator({ maxModelLen: 131_072 });
  worker = await startWorkerd({ VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true" });
});
afterAll(async () => {
  await worker.close();
  await vllm.close();
});

let codex: Codex | undefined;
let proxy: RecordingProxy;
beforeEach(async () => {
  vllm.simulator.requests.length = 0;
  proxy = await openRecordingProxy(worker.url);
});
afterEach(async () => {
  codex?.remove();
  await proxy.close();
});

interface Setup {
  model: string;
  webSockets: boolean;
  /** True: without the command that gives the key. Codex then requests no catalogue, and does not know the model. */
  isUnknown?: boolean;
  /** Tokens after which Codex compacts. */
  compactAt?: number;
  /** True: under the name of the provider whose server Codex lets compact. */
  isOpenai?: boolean;
}

/** Starts Codex with the settings of docs/clients.md: Codex requests the catalogue if a command gives the key. */
function start({ model, webSockets, compactAt, isOpenai = false, isUnknown = false }: Setup): Codex {
  codex = new Codex(
    binary,
    `model = "${model}"
model_provider = "edge"
${compactAt === undefined ? "" : `model_auto_compact_token_limit = ${compactAt}`}
[model_providers.edge]
name = "${isOpenai ? "OpenAI" : "edge"}"
base_url = "${proxy.url}/v1"
wire_api = "responses"
supports_websockets = ${webSockets}
${isUnknown ? "" : '[model_providers.edge.auth]\ncommand = "echo"\nargs = ["any"]'}
[mcp_servers.notes]
command = "${process.execPath}"
args = ["${NOTES_SERVER}"]
`,
  );
  return codex;
}

interface Call {
  name: string;
  namespace?: string;
  arguments?: object;
  /** The input of a custom tool. */
  input?: string;
}

/** The user's text that makes the model make this call. */
function calling(engine: Engine, { name, namespace, arguments: args, input }: Call): string {
  const script =
    engine === "chat"
      ? `<think>\nhm\n</think>\n\n<tool_call>\n${JSON.stringify({
          name: namespace === undefined ? name : `${namespace}__${name}`,
          arguments: args ?? { input },
        })}\n</tool_call><|im_end|>`
      : `<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=${namespace ?? "functions"}.${name}${
          args === undefined ? `<|message|>${input}` : ` <|constrain|>json<|message|>${JSON.stringify(args)}`
        }<|call|>`;
  return `SCRIPT[[${script.replaceAll("<", "‹").replaceAll(">", "›")}]]`;
}

function expectCompleted(run: CodexRun): void {
  expect(run.exitCode, run.log + JSON.stringify(run.events)).toBe(0);
  expect(run.events.map(({ type }) => type)).toContain("turn.completed");
  expect(run.events.map(({ type }) => type)).not.toContain("error");
}

/** The requests to the model server, as text. */
const prompts = () =>
  vllm.simulator.requests.filter(({ path }) => path.endsWith("completions")).map(({ body }) => JSON.stringify(body));

const PATCH = "*** Begin Patch\n*** Add File: greeting.txt\n+Hello, *world*!\n*** End Patch";

it("answers with the settings that the console gives", async () => {
  const samples = connectSamples({ baseUrl: `${proxy.url}/v1`, model: "tiny-qwen3" });
  const config = samples.find(({ id }) => id === "codex")?.files[0]?.text ?? expect.fail();
  codex = new Codex(binary, config, { OPENAI_API_KEY: "any" });
  const run = await codex.exec("Hello!");
  expectCompleted(run);
  expect(run.answer.trim()).toBe("You said: Hello!");
});

describe.each<[engine: Engine, model: string]>([
  ["chat", "tiny-qwen3"],
  ["harmony", "tiny-gpt-oss"],
])("%s", (engine, model) => {
  describe.each([
    ["HTTP", false],
    ["a WebSocket", true],
  ] as const)("over %s", (_transport, webSockets) => {
    const setup = { model, webSockets };

    it("answers", async () => {
      const run = await start(setup).exec("Hello!");
      expectCompleted(run);
      expect(run.answer.trim()).toBe("You said: Hello!");
      expect(proxy.asked("POST /v1/responses")).toBe(!webSockets);
      expect(proxy.asked("GET /v1/responses")).toBe(webSockets);
    });

    it("runs a command, and reads its output", async () => {
      const agent = start(setup);
      const run = await agent.exec(
        calling(engine, { name: "exec_command", arguments: { cmd: "echo made > made.txt && cat made.txt" } }),
      );
      expectCompleted(run);
      expect(agent.file("made.txt")).toBe("made\n");
      expect(run.answer).toContain("The tool returned:");
    });

    it("applies a patch", async () => {
      const agent = start(setup);
      const run = await agent.exec(calling(engine, { name: "apply_patch", input: PATCH }));
      expectCompleted(run);
      expect(agent.file("greeting.txt")).toBe("Hello, *world*!\n");
    });

    it("calls a tool of a namespace", async () => {
      const run = await start(setup).exec(
        calling(engine, { namespace: "multi_agent_v1", name: "close_agent", arguments: { target: "nobody" } }),
      );
      expectCompleted(run);
      expect(prompts().at(-1)).not.toContain("unsupported call");
      expect(run.answer).toContain("The tool returned:");
    });

    it("calls a tool of the user's MCP server", async () => {
      const agent = start(setup);
      const run = await agent.exec(
        calling(engine, { namespace: "mcp__notes", name: "take_note", arguments: { text: "walrus" } }),
      );
      expectCompleted(run);
      expect(run.answer).toContain("noted: walrus");
    });

    it("starts a sub-agent", async () => {
      const run = await start(setup).exec(
        calling(engine, {
          namespace: "multi_agent_v1",
          name: "spawn_agent",
          arguments: { message: "Count walruses." },
        }),
      );
      expectCompleted(run);
      // The agent may end before its parent's next turn. The parent is then told of it.
      expect(run.answer).toMatch(/agent_id|subagent_notification/);
      expect(prompts().some((prompt) => prompt.includes("agent_id"))).toBe(true);
    });

    it("works with a model that Codex does not know", async () => {
      const agent = start({ ...setup, isUnknown: true });
      const run = await agent.exec(
        calling(engine, { name: "exec_command", arguments: { cmd: "echo made > made.txt" } }),
      );
      expectCompleted(run);
      expect(agent.file("made.txt")).toBe("made\n");
    });

    it("resumes a session", async () => {
      const agent = start(setup);
      expectCompleted(await agent.exec("The first word is walrus."));
      const run = await agent.exec("resume", "--last", "And the second?");
      expectCompleted(run);
      expect(run.answer.trim()).toBe("You said: And the second?");
      expect(prompts().at(-1)).toContain("walrus");
    });

    it("compacts by itself", async () => {
      const agent = start({ ...setup, compactAt: 1_000 });
      expectCompleted(await agent.exec("The first word is walrus."));
      const run = await agent.exec("resume", "--last", "And the second?");
      expectCompleted(run);
      expect(run.answer.trim()).toBe("You said: And the second?");
      // Codex itself asks for a summary, and continues from it.
      expect(prompts().some((prompt) => prompt.includes("CONTEXT CHECKPOINT COMPACTION"))).toBe(true);
      expect(prompts().at(-1)).toContain("use the information in this summary");
    });

    it("has the server compact", async () => {
      const agent = start({ ...setup, compactAt: 1_000, isOpenai: true });
      expectCompleted(await agent.exec("The first word is walrus."));
      const run = await agent.exec("resume", "--last", "And the second?");
      expectCompleted(run);
      expect(run.answer.trim()).toBe("You said: And the second?");
      expect(prompts().some((prompt) => prompt.includes("CONTEXT CHECKPOINT COMPACTION"))).toBe(false);
      expect(prompts().some((prompt) => prompt.includes("write nothing but the summary"))).toBe(true);
    });
  });
});
