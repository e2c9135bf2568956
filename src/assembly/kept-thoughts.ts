import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { Config } from "../config/index.ts";

/**
 * The request with the turns whose thoughts the model gets back, as the operator says (`KEEP_THOUGHTS`), where the request does not
 * say it: as its `reasoning.context`, or as variables of the chat template.
 *
 * @param model The server's name of the model.
 */
export function withKeptThoughts(
  request: CreateRequest,
  model: string,
  { keepThoughts }: Pick<Config, "keepThoughts">,
): CreateRequest {
  const kept = Object.hasOwn(keepThoughts, model) ? keepThoughts[model] : keepThoughts["*"];
  const { reasoning, chat_template_kwargs: own } = request;
  if (kept === undefined || reasoning?.context != null) return request;
  if (typeof kept !== "string") return { ...request, chat_template_kwargs: { ...kept, ...own } };
  return { ...request, reasoning: { ...reasoning, context: kept } };
}
