import { listModels as list } from "../assembly/model-server.ts";
import { ApiError } from "../protocol/errors.ts";
import type { Caller } from "./transport.ts";

/** A model as `/v1/models` shows it; what else vLLM says of it is in it, too. */
export type ModelCard = Awaited<ReturnType<typeof list>>[number];

/** vLLM's models and the configured aliases. Throws ApiError for a model server that does not list them. */
export function listModels({ config, signal }: Pick<Caller, "config" | "signal">): Promise<ModelCard[]> {
  return list(config, signal);
}

/** One of them. Throws the 404 of a model that is not among them. */
export async function retrieveModel(caller: Pick<Caller, "config" | "signal">, id: string): Promise<ModelCard> {
  const card = (await listModels(caller)).find((model) => model.id === id);
  if (card) return card;
  throw new ApiError({
    status: 404,
    message: `The model '${id}' does not exist.`,
    param: "model",
    code: "model_not_found",
  });
}
