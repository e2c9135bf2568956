import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { freePort } from "../workerd/tools.ts";
import { type Engine, MODELS, type ModelServer, WINDOWS } from "./model-server.ts";

/** The simulator as a model server, with the same kinds of death and an immediate restart. */
export async function startSimulator(engine: Engine): Promise<ModelServer> {
  const port = await freePort();
  let running: SimulatorServer | undefined = await serveSimulator({ models: [MODELS[engine]], port });
  const { url } = running;

  const close = async () => {
    const last = running;
    running = undefined;
    await last?.close();
  };
  return {
    engine,
    version: "the simulator",
    url,
    model: MODELS[engine],
    window: WINDOWS[engine],
    generations: async () => {
      const requests = running?.simulator.requests ?? [];
      return requests.filter(({ path, state }) => path.endsWith("completions") && state === "open").length;
    },
    life: {
      crashEngine: async () => running?.crashEngine(),
      terminate: async () => running?.terminate(),
      kill: close,
      async start() {
        await close();
        running = await serveSimulator({ models: [MODELS[engine]], port });
      },
    },
    close,
  };
}
