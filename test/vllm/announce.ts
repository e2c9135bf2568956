import { findInstallation } from "./vllm-installation.ts";

/** Prints the tested model server before any test runs. */
export default function announce(): void {
  const { VLLM_CHAT_URL, VLLM_HARMONY_URL } = process.env;
  const installation = findInstallation();
  const shared = [VLLM_CHAT_URL, VLLM_HARMONY_URL].filter(Boolean);
  if (shared.length > 0) console.log(`Using servers that run already: ${shared.join(", ")}. Nothing is killed.`);
  else if (installation) console.log(`Starting servers with ${installation.command}; each start takes minutes.`);
  else console.log("Skipped: no vLLM here. Set VLLM_HOME to a Python environment that has it; see docs/vllm.md.");
}
