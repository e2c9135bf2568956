import { describe, it } from "vitest";
import { facts } from "./facts/all.ts";
import type { Engine } from "./model-server.ts";
import { findInstallation } from "./vllm-installation.ts";
import { START_MS, sharedVllm, startVllm } from "./vllm-server.ts";

const SHARED: Record<Engine, string> = { chat: "VLLM_CHAT_URL", harmony: "VLLM_HARMONY_URL" };

/**
 * Registers the facts against a real vLLM: a running one, or else one that is started here. Without vLLM there are
 * none.
 */
export function factsAboutVllm(engine: Engine): void {
  const url = process.env[SHARED[engine]];
  const installation = findInstallation();
  const tokenMs = 60;
  if (url) {
    facts({ engine, serve: () => sharedVllm(engine, url), owned: false, restartMs: START_MS, tokenMs });
  } else if (installation) {
    const serve = () => startVllm(installation, engine);
    facts({ engine, serve, owned: true, restartMs: START_MS, tokenMs });
  } else {
    describe(engine, () => it.skip("needs a vLLM: docs/vllm.md says how to install one"));
  }
}
