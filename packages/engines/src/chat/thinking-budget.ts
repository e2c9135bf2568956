import { ApiError } from "@responses-edge/responses-api/errors";
import type { Prompt } from "@responses-edge/turn/contract/engine";
import { dialectOf } from "../model-lists.ts";
import type { ModelServer } from "../model-server.ts";
import { isBelieved, PARSER_FACTS, parserFactsOf } from "../parser-facts.ts";
import type { ChatConfig } from "../settings.ts";

/** Budgets of reasoning tokens: of the request, or the operator's for its effort. */

/** The operator's budget for the effort of a prompt; undefined if there is none. */
export function thinkingBudgetOf({ model, request }: Prompt, { thinkingBudgets }: ChatConfig): number | undefined {
  const effort = request.reasoning?.effort;
  const budgets = Object.hasOwn(thinkingBudgets, model) ? thinkingBudgets[model] : undefined;
  return effort == null ? undefined : budgets?.[effort];
}

/** False for a server that has refused a budget, because it does not know the end of its model's reasoning. */
export function mayBindThinking({ baseUrl }: ModelServer): boolean {
  return !isBelieved(PARSER_FACTS.get(baseUrl)?.refusedBudgetAt);
}

/** Tells whether a vLLM has refused a budget because it runs without `--reasoning-config`, and remembers it. */
export function refusesThinkingBudget(error: unknown, { baseUrl }: ModelServer): boolean {
  if (!(error instanceof ApiError) || error.status !== 400) return false;
  if (!/thinking_token_budget is set but/i.test(error.message)) return false;
  parserFactsOf(baseUrl).refusedBudgetAt = Date.now();
  return true;
}

/** The budget of a prompt that its server does not enforce; undefined if there is none, or the server does. */
export function unboundThinking(prompt: Prompt, config: ChatConfig, server: ModelServer): number | undefined {
  const budget = prompt.request.thinking_token_budget ?? thinkingBudgetOf(prompt, config);
  if (budget === undefined || budget < 0) return undefined;
  const { fields } = dialectOf(server) ?? {};
  const isKnown = fields === undefined || Object.hasOwn(fields, "thinking_token_budget");
  return isKnown && mayBindThinking(server) ? undefined : budget;
}
