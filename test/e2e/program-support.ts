import type { Tool } from "openai/resources/responses/responses";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { descriptionOf } from "../conformance/api-description.ts";
import { startWorkerd } from "../workerd/process.ts";
import { DATE, type Gateway, gatewayAt } from "./support.ts";
import { unique } from "./turns.ts";

/** A gateway that runs programs, and models that write the programs of tests. */

export interface ProgramGateway extends Gateway {
  /** Kills it, and starts it again. */
  restart(): Promise<void>;
}

/** Starts `serve`, whose bounded processes run programs. Every answer is compared with OpenAI's types. */
export async function startPrograms(variables: Record<string, string>): Promise<ProgramGateway> {
  const vllm = await serveSimulator();
  const worker = await startWorkerd(
    { VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", HARMONY_START_DATE: DATE, ...variables },
    { through: "serve" },
  );
  return { ...gatewayAt(worker, vllm, await descriptionOf(worker.url)), restart: worker.restart };
}

export const CHAT = "tiny-qwen3";

/** One model for each engine. */
export const MODELS = [CHAT, "tiny-gpt-oss"];

export const program: Tool = { type: "programmatic_tool_calling" };

/** The input that makes a model write a program. */
export function writing(model: string, code: string): string {
  const args = JSON.stringify({ code });
  const script =
    model === CHAT
      ? `‹think›\nhm\n‹/think›\n\n‹tool_call›\n{"name": "programmatic_tool_calling", "arguments": ${args}}\n‹/tool_call›‹|im_end|›`
      : `‹|channel|›commentary to=functions.programmatic_tool_calling ‹|constrain|›json‹|message|›${args}‹|call|›`;
  return unique(`SCRIPT[[${script}]]`);
}
