import { listModels as list } from "../assembly/model-server.ts";
import { ApiError } from "../protocol/errors.ts";
import { mayUseModel } from "./policy.ts";
import type { Caller } from "./transport.ts";

/** A model as `/v1/models` shows it; what else vLLM says of it is in it, too. */
export type ModelCard = Awaited<ReturnType<typeof list>>[number];

type Asker = Pick<Caller, "config" | "signal" | "identity">;

/** Those of vLLM's models and the configured aliases that the caller may use. Throws ApiError for a model server that does not list them. */
export async function listModels({ config, signal, identity }: Asker): Promise<ModelCard[]> {
  const cards = await list(config, signal);
  return cards.filter(({ id }) => mayUseModel(identity, id));
}

/** One of them. Throws the 404 of a model that is not among them. */
export async function retrieveModel(caller: Asker, id: string): Promise<ModelCard> {
  const card = (await listModels(caller)).find((model) => model.id === id);
  if (card) return card;
  throw new ApiError({
    status: 404,
    message: `The model '${id}' does not exist.`,
    param: "model",
    code: "model_not_found",
  });
}
