import { describe } from "vitest";
import { facts } from "../vllm/facts/all.ts";
import { startSimulator } from "../vllm/simulated-server.ts";

/** The facts of `npm run test:vllm` with the simulator instead of a real vLLM. */
describe.each(["chat", "harmony"] as const)("%s", (engine) => {
  const variables = { VLLM_SILENCE_MS: "300" };
  facts({ engine, serve: startSimulator, owned: true, restartMs: 20_000, tokenMs: 15, variables });
});
