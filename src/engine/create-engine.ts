import type { Config, EngineName } from "../config.ts";
import type { Engine } from "../contract/engine.ts";
import { ChatEngine } from "./chat/engine.ts";
import { ClientFaults } from "./client-faults.ts";
import { HarmonyEngine } from "./harmony/engine.ts";
import type { Upstream } from "./upstream.ts";

/** The engine that speaks to a model. */
export function createEngine(name: EngineName, config: Config, upstream: Upstream): Engine {
  const engine = name === "harmony" ? new HarmonyEngine(upstream, config.harmony) : new ChatEngine(upstream, config);
  return new ClientFaults(engine);
}
