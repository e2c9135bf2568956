import { mkdirSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { freePort } from "../workerd/tools.ts";
import { type Engine, MODELS, type ModelServer, WINDOWS } from "./model-server.ts";
import { type Running, runGroup, untilRefused } from "./process-group.ts";
import { cache, type Installation, scriptedModel, scripts, vocabularies } from "./vllm-installation.ts";

/** The maximum time of a server's start: two minutes without a GPU, many more on a busy machine. */
export const START_MS = 1_200_000;

const OPTIONS: Record<Engine, string[]> = {
  chat: ["--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"],
  harmony: ["--tool-call-parser", "openai"],
};

/** Starts a real vLLM with a scripted model on a free port. It ends at the latest with this process. */
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

/** A running server, which the tests leave as it is. */
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

/** vLLM, whose log is in the cache. */
async function run(installation: Installation, engine: Engine, model: string, port: number): Promise<Running> {
  mkdirSync(cache, { recursive: true });
  const log = join(cache, `${engine}-${port}.log`);
  const options = ["--host", "127.0.0.1", "--port", String(port), "--max-model-len", String(WINDOWS[engine])];
  const tools = ["--enable-auto-tool-choice", ...OPTIONS[engine], "--enable-prompt-tokens-details"];
  const small = ["--enforce-eager", "--dtype", "bfloat16", "--max-num-seqs", "16"];
  const scripted = ["--logits-processors", "script_processor:ScriptProcessor"];
  const extra = (process.env.VLLM_ARGS ?? "").split(/\s+/).filter(Boolean);
  return await runGroup({
    name: "vLLM",
    command: [installation.command, "serve", model, "--served-model-name", MODELS[engine]].concat(
      options,
      tools,
      small,
      scripted,
      extra,
    ),
    log,
    startMs: START_MS,
    env: {
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
      // A step that takes this many seconds kills the engine. The default is 300, which a busy machine can reach.
      VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: "3600",
    },
  });
}
