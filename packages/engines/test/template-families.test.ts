import { familyNamed, thoughtVariables } from "@responses-edge/engines/chat/template-families";
import { describe, expect, it } from "vitest";

/** The variables of an agent's request, and of one that wants the thoughts of its turn only. */
function variablesOf(name: string) {
  const family = familyNamed([name]);
  if (!family) return undefined;
  return [thoughtVariables(family, undefined, true), thoughtVariables(family, "all_turns", false)];
}

describe("the family of a chat template", () => {
  it.each([
    ["Qwen/Qwen3.6-35B-A3B", { preserve_thinking: true }],
    ["unsloth/Qwen3.6-27B-GGUF:Q4_K_M", { preserve_thinking: true }],
    ["zai-org/GLM-4.7", { clear_thinking: false }],
    ["zai-org/GLM-5.1-FP8", { clear_thinking: false }],
    ["moonshotai/Kimi-K2.6", { preserve_thinking: true }],
  ])("of %s keeps thoughts for agents, as its card says", (name, keeps) => {
    expect(variablesOf(name)).toEqual([keeps, keeps]);
  });

  it.each([
    ["Qwen/Qwen3.8-Max", { preserve_thinking: true }],
    ["deepseek-ai/DeepSeek-V3.2", { drop_thinking: false }],
    ["deepseek-ai/DeepSeek-V4-Flash", { drop_thinking: false }],
    ["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", { truncate_history_thinking: false }],
    ["google/gemma-4-31B-it", { preserve_thinking: true }],
    ["tencent/Hy3-preview", { preserved_thinking: true }],
  ])("of %s has a default of its own for agents, and keeps them on request", (name, keeps) => {
    expect(variablesOf(name)).toEqual([{}, keeps]);
  });

  it.each([
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3.5-397B-A17B",
    "zai-org/GLM-4.6",
    "moonshotai/Kimi-K2-Thinking",
    "moonshotai/Kimi-K2.5",
    "deepseek-ai/DeepSeek-R1-0528",
    "deepseek-ai/DeepSeek-V3.1",
    "MiniMaxAI/MiniMax-M2.5",
  ])("of %s has no variable for it: on request it gets those of all families", (name) => {
    const [agents, all] = variablesOf(name) ?? [];
    expect(agents).toEqual({});
    expect(all).toMatchObject({ preserve_thinking: true, clear_thinking: false, drop_thinking: false });
  });

  it.each(["my-model", "meta-llama/Llama-3.3-70B-Instruct", "mistralai/Devstral-2"])("is unknown for %s", (name) => {
    expect(variablesOf(name)).toBeUndefined();
  });

  it("is also known by the repository that a model was loaded from", () => {
    expect(familyNamed(["coder", "/models/Qwen3.6-27B", undefined])?.name).toBe("Qwen3.6");
  });

  it.each([
    ["deepseek-ai/DeepSeek-V3.1", "thinking"],
    ["moonshotai/Kimi-K2.5", "thinking"],
    ["ibm-granite/granite-4.0-h-small", "thinking"],
    ["zai-org/GLM-4.7", undefined],
  ])("of %s turns thinking on by %s", (name, variable) => {
    expect(familyNamed([name])?.thinks).toBe(variable);
  });
});
