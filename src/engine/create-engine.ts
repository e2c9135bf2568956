import type { Config, EngineName } from "../config.ts";
import type { Engine } from "../contract/engine.ts";
import type { HostedTools } from "../contract/hosted-tool.ts";
import { ChatEngine } from "./chat/engine.ts";
import { ClientFaults } from "./client-faults.ts";
import { HarmonyEngine } from "./harmony/engine.ts";
import type { Upstream } from "./upstream.ts";

/** The engine that speaks to a model. `hostedTools` are those whose calls may stand in a prompt. */
export function createEngine(name: EngineName, config: Config, upstream: Upstream, hostedTools: HostedTools): Engine {
  const engine =
    name === "harmony"
      ? new HarmonyEngine(upstream, hostedTools, config.harmony)
      : new ChatEngine(upstream, hostedTools, config);
  return new ClientFaults(engine);
}
