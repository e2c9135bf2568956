import { beforeEach, describe } from "vitest";
import { facts } from "../vllm/facts/all.ts";
import { startSimulator } from "../vllm/simulated-server.ts";

/** Not true yet, of a real vLLM neither: each leaves this list, and docs/vllm.md, with the change that makes it true. */
const NOT_YET = new Set([
  "harmony > functions > functions with strict: false > a call of a function that was not offered is none of the client's",
  "harmony > functions > functions with strict: false > a completed call has arguments that can be parsed",
]);
beforeEach(({ task, skip }) => skip(NOT_YET.has(task.fullTestName)));

/** The facts that `npm run test:vllm` shows of a real vLLM, here of the simulator. */
describe.each(["chat", "harmony"] as const)("%s", (engine) => {
  const variables = { VLLM_SILENCE_MS: "300" };
  facts({ engine, serve: startSimulator, owned: true, restartMs: 20_000, tokenMs: 15, variables });
});
