import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { freePort } from "../workerd/tools.ts";
import { type Engine, MODELS, type ModelServer, WINDOWS } from "./model-server.ts";
import { cache, type Installation, scriptedModel, scripts, vocabularies } from "./vllm-installation.ts";

/** How long a server may take to come up: two minutes without a GPU, many more on a busy machine. */
export const START_MS = 1_200_000;

const OPTIONS: Record<Engine, string[]> = {
  chat: ["--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"],
  harmony: ["--tool-call-parser", "openai"],
};

/** Starts a real vLLM with a model that speaks by script, on a free port; it ends with this process at the latest. */
export async function startVllm(installation: Installation, engine: Engine): Promise<ModelServer> {
  const model = await scriptedModel(installation, engine);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  let running: Running | undefined;

  const start = async () => {
    await running?.kill();
    running = await run(installation, engine, model, port);
    await running.ready(`${url}/health`);
  };
  await start();
  const { version } = (await (await fetch(`${url}/version`)).json()) as { version: string };
  return {
    engine,
    version: `vLLM ${version}`,
    url,
    model: MODELS[engine],
    window: WINDOWS[engine],
    generations: async () => generationsIn(await (await fetch(`${url}/metrics`)).text()),
    life: {
      start,
      async crashEngine() {
        for (const pid of running?.processes("EngineCore") ?? []) process.kill(pid, "SIGKILL");
        await untilRefused(url);
      },
      async terminate() {
        running?.terminate();
        await untilRefused(url);
      },
      async kill() {
        await running?.kill();
      },
    },
    close: async () => running?.kill(),
  };
}

/** A server that is there already, and is left as it is found. */
export async function sharedVllm(engine: Engine, base: string): Promise<ModelServer> {
  const url = base.replace(/\/+$/, "").replace(/\/v1$/, "");
  const { version } = (await (await fetch(`${url}/version`)).json()) as { version: string };
  const { data } = (await (await fetch(`${url}/v1/models`)).json()) as {
    data: { id: string; max_model_len: number }[];
  };
  const [card] = data;
  if (!card) throw new Error(`${url} serves no model.`);
  return {
    engine,
    version: `vLLM ${version} at ${url}`,
    url,
    model: card.id,
    window: card.max_model_len,
    close: async () => {},
  };
}

/** Running and waiting requests, from vLLM's metrics. */
function generationsIn(metrics: string): number {
  const gauges = metrics.matchAll(/^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)$/gm);
  return [...gauges].reduce((sum, [, value]) => sum + Number(value), 0);
}

interface Running {
  /** Waits until `url` is answered with 200; throws when the process exits first, with the end of its log. */
  ready(url: string): Promise<void>;
  /** SIGTERM to the command itself, as a service manager would. */
  terminate(): void;
  /** The ids of those of its processes whose name has this in it. */
  processes(name: string): number[];
  /** SIGKILL to all of them; resolves when they are gone. */
  kill(): Promise<void>;
}

/**
 * vLLM in a process group of its own, below a shell that waits for its standard input to end: whatever becomes of this
 * process, the shell then kills the group.
 */
async function run(installation: Installation, engine: Engine, model: string, port: number): Promise<Running> {
  mkdirSync(cache, { recursive: true });
  const log = join(cache, `${engine}-${port}.log`);
  const command = [installation.command, "serve", model, "--served-model-name", MODELS[engine]];
  const options = ["--host", "127.0.0.1", "--port", String(port), "--max-model-len", String(WINDOWS[engine])];
  const tools = ["--enable-auto-tool-choice", ...OPTIONS[engine], "--enable-prompt-tokens-details"];
  const small = ["--enforce-eager", "--dtype", "bfloat16", "--max-num-seqs", "16"];
  const scripted = ["--logits-processors", "script_processor:ScriptProcessor"];
  const extra = (process.env.VLLM_ARGS ?? "").split(/\s+/).filter(Boolean);
  const shell = spawn(
    "sh",
    [
      "-c",
      '"$@" >>"$LOG" 2>&1 </dev/null & echo $!; read -r _; kill -9 0',
      "sh",
      ...command,
      ...options,
      ...tools,
    ].concat(small, scripted, extra),
    {
      detached: true,
      stdio: ["pipe", "pipe", "ignore"],
      env: {
        ...process.env,
        LOG: log,
        PATH: `${dirname(installation.command)}${delimiter}${process.env.PATH}`,
        PYTHONPATH: scripts,
        PYTHONDONTWRITEBYTECODE: "1",
        TIKTOKEN_ENCODINGS_BASE: vocabularies,
        HF_HUB_OFFLINE: "1",
        VLLM_NO_USAGE_STATS: "1",
        DO_NOT_TRACK: "1",
        // Without a GPU: little memory, and a thread that shares its cores.
        VLLM_CPU_KVCACHE_SPACE: "1",
        VLLM_CPU_OMP_THREADS_BIND: "nobind",
        OMP_NUM_THREADS: "1",
        // A step that takes this many seconds kills the engine: 300 by default, which a busy machine can reach.
        VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: "3600",
      },
    },
  );
  const group = shell.pid ?? 0;
  const pid = await firstLine(shell);
  const members = () => processesOf(group);
  return {
    async ready(url) {
      const deadline = Date.now() + START_MS;
      for (;;) {
        if (!members().some((member) => member.pid === pid)) throw new Error(`vLLM exited: ${log}`);
        if (await isServed(url)) return;
        if (Date.now() > deadline) throw new Error(`vLLM did not come up in ${START_MS / 1000} s: ${log}`);
        await pause(500);
      }
    },
    terminate: () => process.kill(pid, "SIGTERM"),
    processes: (name) => members().flatMap((member) => (member.name.includes(name) ? [member.pid] : [])),
    async kill() {
      if (members().length === 0) return;
      process.kill(-group, "SIGKILL");
      while (members().length > 0) await pause(50);
    },
  };
}

async function firstLine(child: ChildProcess): Promise<number> {
  if (!child.stdout) throw new Error("No standard output.");
  const [line] = (await once(createInterface(child.stdout), "line")) as [string];
  return Number(line);
}

/** The living processes of a group. */
function processesOf(group: number): { pid: number; name: string }[] {
  const lines = execFileSync("ps", ["-A", "-o", "pid=,pgid=,stat=,args="], { encoding: "utf8" }).split("\n");
  return lines.flatMap((line) => {
    const [, pid, pgid, state = "", name = ""] = /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.*)$/.exec(line) ?? [];
    return Number(pgid) === group && !state.startsWith("Z") ? [{ pid: Number(pid), name }] : [];
  });
}

async function isServed(url: string): Promise<boolean> {
  return fetch(url).then(
    async (answer) => {
      await answer.body?.cancel();
      return answer.ok;
    },
    () => false,
  );
}

/** Waits until nobody listens any more. */
async function untilRefused(url: string): Promise<void> {
  const deadline = Date.now() + 60_000;
  const answers = () =>
    fetch(`${url}/health`).then(
      (answer) => answer.body?.cancel().then(() => true) ?? true,
      () => false,
    );
  while (await answers()) {
    if (Date.now() > deadline) throw new Error(`${url} still listens.`);
    await pause(100);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
