import { LongWork } from "@responses-edge/long-work";
import type { Config, EngineName } from "../config/index.ts";
import type { Engine } from "../contract/engine.ts";
import type { Plugins } from "../contract/plugin.ts";
import { ChatEngine } from "./chat/engine.ts";
import { ClientFaults } from "./client-faults.ts";
import { HarmonyEngine } from "./harmony/engine.ts";
import type { Upstream } from "./upstream.ts";

/** The engine that speaks to a model. `plugins` are those whose calls may stand in a prompt, `tenant` is whose work it does. */
export function createEngine(
  name: EngineName,
  config: Config,
  upstream: Upstream,
  plugins: Plugins,
  tenant: string,
): Engine {
  const work = new LongWork(tenant);
  const engine =
    name === "harmony"
      ? new HarmonyEngine(upstream, plugins, config.harmony, work)
      : new ChatEngine(upstream, plugins, config, work);
  return new ClientFaults(engine);
}
