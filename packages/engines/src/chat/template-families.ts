import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";

/**
 * The families of chat templates by how they treat the thoughts of earlier turns. A template that drops old thoughts at the user's
 * next message changes the prompt from the first of them on, so that the model server computes the rest again.
 *
 * The facts are those of the models' cards and templates (Qwen, Z.ai, Moonshot, DeepSeek, NVIDIA, Google, Tencent, IBM, MiniMax).
 */

/** The turns whose reasoning the model gets back. */
export type ReasoningContext = NonNullable<CreateRequest["reasoning"]>["context"];

/** Variables of a chat template (`chat_template_kwargs`). */
export type TemplateVariables = Readonly<Record<string, unknown>>;

export interface TemplateFamily {
  readonly name: string;
  /** Matches the names of its models, and the repositories that they come from. */
  readonly models: RegExp;
  /** The variables with which the template keeps the thoughts of all turns; undefined: no variable does. */
  readonly keeps?: TemplateVariables;
  /** Those with which it has only the thoughts since the user's last message. */
  readonly drops?: TemplateVariables;
  /** The card tells agents to keep thoughts: a request with tools keeps them, unless it says otherwise. */
  readonly agentsKeep?: true;
  /** The variable that turns thinking on and off, for templates that do not read `enable_thinking`. */
  readonly thinks?: string;
}

const PRESERVE = { keeps: { preserve_thinking: true }, drops: { preserve_thinking: false } };

/** The first family that matches is a model's. */
export const TEMPLATE_FAMILIES: readonly TemplateFamily[] = [
  // Keeps them by default.
  { name: "Qwen3.8", models: /qwen-?3\.[89]/i, ...PRESERVE },
  { name: "Qwen3.6", models: /qwen-?3\.[67]/i, ...PRESERVE, agentsKeep: true },
  { name: "Qwen3", models: /qwen-?3|qwq/i },
  {
    name: "GLM-4.7",
    models: /glm-?(4\.[7-9]|[5-9])/i,
    keeps: { clear_thinking: false },
    drops: { clear_thinking: true },
    agentsKeep: true,
  },
  { name: "GLM-4.5", models: /glm-?4/i },
  { name: "Kimi K2.6", models: /kimi-?k(2\.[6-9]|[3-9])/i, ...PRESERVE, agentsKeep: true, thinks: "thinking" },
  { name: "Kimi K2.5", models: /kimi-?k2\.5/i, thinks: "thinking" },
  { name: "Kimi K2", models: /kimi/i },
  {
    // Keeps them by default where the prompt has tools.
    name: "DeepSeek V3.2",
    models: /deepseek-?(v?3\.[2-9]|v?[4-9])/i,
    keeps: { drop_thinking: false },
    drops: { drop_thinking: true },
    thinks: "thinking",
  },
  { name: "DeepSeek V3.1", models: /deepseek-?v?3\.1/i, thinks: "thinking" },
  { name: "DeepSeek R1", models: /deepseek/i },
  { name: "MiniMax M2", models: /minimax-?m[2-9]/i },
  {
    name: "Nemotron 3",
    models: /nemotron-?3/i,
    keeps: { truncate_history_thinking: false },
    drops: { truncate_history_thinking: true },
  },
  { name: "Gemma 4", models: /gemma-?4/i, ...PRESERVE },
  {
    // Keeps them by default where the prompt has tools.
    name: "Hy3",
    models: /\bhy-?3|hunyuan-?3/i,
    keeps: { preserved_thinking: true },
    drops: { preserved_thinking: false },
  },
  { name: "Granite", models: /granite/i, thinks: "thinking" },
];

/** The variables of all families together: a template ignores those that it does not read. */
const ALL_KEEP: TemplateVariables = Object.assign({}, ...TEMPLATE_FAMILIES.map(({ keeps }) => keeps));

/** A template that no name shows: by the counts of its server, `keeps` tells whether one of the variables makes a difference. */
export function unnamedFamily(keeps: boolean): TemplateFamily {
  return { name: "unnamed", models: /^$/, ...(keeps && { keeps: ALL_KEEP, agentsKeep: true }) };
}

/** The family of a model by its names: the client's, the server's, and that of the repository or the file it was loaded from. */
export function familyNamed(names: Iterable<unknown>): TemplateFamily | undefined {
  const known = [...names].filter((name) => typeof name === "string");
  return TEMPLATE_FAMILIES.find(({ models }) => known.some((name) => models.test(name)));
}

/**
 * The variables that a prompt gives its template for the thoughts of earlier turns; none where the template's own default is right.
 *
 * @param context The request's `reasoning.context`.
 */
export function thoughtVariables(
  { keeps, drops = {}, agentsKeep }: TemplateFamily,
  context: ReasoningContext,
  hasTools: boolean,
): TemplateVariables {
  // A newer template than the family's may have a variable after all.
  if (context === "all_turns") return keeps ?? ALL_KEEP;
  if (context === "current_turn") return drops;
  return (agentsKeep && hasTools && keeps) || {};
}

/** A conversation whose length shows whether a template keeps the thoughts of earlier turns. */
export const PROBE_MESSAGES = [
  { role: "user", content: "1" },
  { role: "assistant", reasoning: "2 3 5 7 11 13", reasoning_content: "2 3 5 7 11 13", content: "2" },
  { role: "user", content: "3" },
];

/** The bodies whose counts differ if one of the variables makes a template keep thoughts. */
export function probeBodies(model: string): [plain: object, keeping: object] {
  const plain = { model, messages: PROBE_MESSAGES };
  return [plain, { ...plain, chat_template_kwargs: ALL_KEEP }];
}
