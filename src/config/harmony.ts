import { z } from "zod";
import { flag } from "./values.ts";
import { type Section, type ValuesOf, variable } from "./variable.ts";

/** How prompts for gpt-oss are written. */
export const harmony = {
  title: "gpt-oss",
  variables: {
    /** Undefined is the turn's own date. */
    startDate: variable(
      "HARMONY_START_DATE",
      z.iso.date().optional(),
      "`YYYY-MM-DD`: fixes the date in the system message, as vLLM's `VLLM_SYSTEM_START_DATE`. Without it the date is that of the turn.",
    ),
    systemInstructions: variable(
      "HARMONY_SYSTEM_INSTRUCTIONS",
      flag(),
      "`true` puts instructions into the system message, behind the model's identity, as vLLM's `VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS`.",
    ),
    toolHeader: variable(
      "HARMONY_TOOL_HEADER",
      z.enum(["channel-first", "recipient-first"]).default("channel-first"),
      "Where the header of a tool's answer names its recipient: behind the channel or before it. openai/harmony wrote `recipient-first` until 0.0.11.",
    ),
  },
} satisfies Section;

export type HarmonyConfig = ValuesOf<typeof harmony>;
