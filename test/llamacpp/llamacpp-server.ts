import { join } from "node:path";
import { MODELS, type ModelServer } from "../vllm/model-server.ts";
import { type Running, runGroup, untilRefused } from "../vllm/process-group.ts";
import { freePort } from "../workerd/tools.ts";
import { cache, type Installation, type Pace, scriptedModel, scripts, type Template } from "./llamacpp-installation.ts";

/** The maximum time of a server's start: a second, and more on a busy machine. */
export const START_MS = 120_000;

/** The window, and the number of answers at a time. */
const BOUNDS: Record<Pace, { window: number; slots: number }> = {
  fast: { window: 4_096, slots: 8 },
  slow: { window: 4_096, slots: 8 },
  long: { window: 65_536, slots: 2 },
};

/** Starts a real llama.cpp with the scripted model on a free port. It ends at the latest with this process. */
export async function startLlamacpp(
  installation: Installation,
  pace: Pace,
  template: Template = "chatml",
): Promise<ModelServer> {
  const model = await scriptedModel(installation, pace, template);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  let running: Running | undefined;

  const start = async () => {
    await running?.kill();
    running = await runGroup({
      name: "llama.cpp",
      command: commandOf(installation, model, port, pace),
      env: { PYTHONDONTWRITEBYTECODE: "1" },
      log: join(cache, `${pace}-${port}.log`),
      startMs: START_MS,
    });
    await running.ready(`${url}/health`);
  };
  const kill = async () => {
    await running?.kill();
  };
  await start();
  const { build_info } = (await (await fetch(`${url}/props`)).json()) as { build_info: string };
  return {
    engine: "chat",
    kind: "llamacpp",
    version: `llama.cpp ${build_info}`,
    url,
    model: MODELS.chat,
    window: BOUNDS[pace].window,
    generations: async () => generationsIn(await (await fetch(`${url}/metrics`)).text()),
    life: {
      start,
      // The server is one process, which generates and answers.
      crashEngine: kill,
      async terminate() {
        running?.terminate();
        await untilRefused(url);
      },
      kill,
    },
    close: kill,
  };
}

function commandOf({ python, server }: Installation, model: string, port: number, pace: Pace): string[] {
  const { window, slots } = BOUNDS[pace];
  if (!server) return [python, join(scripts, "serve.py"), model, MODELS.chat, `${port}`, `${slots}`, `${window}`];
  const served = ["--alias", MODELS.chat, "--host", "127.0.0.1", "--port", `${port}`];
  const small = ["--parallel", `${slots}`, "--ctx-size", `${slots * window}`, "--no-kv-unified", "--threads", "1"];
  return [server, "--model", model, ...served, ...small, "--jinja", "--metrics"];
}

/** Running and waiting requests, from its metrics. */
function generationsIn(metrics: string): number {
  const gauges = metrics.matchAll(/^llamacpp:requests_(?:processing|deferred) (\S+)$/gm);
  return [...gauges].reduce((sum, [, value]) => sum + Number(value), 0);
}
