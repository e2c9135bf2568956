import { IMAGE_QUALITIES } from "@responses-edge/responses-api/image-tool";
import { z } from "zod";
import type { OperatorNetwork } from "./network.ts";
import type { ServerValues } from "./servers.ts";
import { ownModel } from "./upstreams.ts";
import { days, headerSecret, jsonMap, milliseconds, modelName, serverUrl } from "./values.ts";
import { type Section, type ValuesOf, variable } from "./variable.ts";

/** Images: the models that draw for the tool `image_generation`, and how long images are kept. */

const qualitySteps = jsonMap(z.int().min(1).max(1_000), '{"low":8,"medium":20,"high":50}').refine(
  (given) => Object.keys(given).every((name) => (IMAGE_QUALITIES as readonly string[]).includes(name)),
  `expected the names ${IMAGE_QUALITIES.join(", ")}`,
);

export const images = {
  title: "Images",
  variables: {
    model: variable(
      "IMAGE_MODEL",
      modelName,
      "The model that draws for the tool `image_generation`, asked by `/v1/images/generations`. Without it the tool is a 400 ([tools.md](../tools.md#images)).",
    ),
    baseUrl: variable(
      "IMAGE_BASE_URL",
      serverUrl.optional(),
      "The server of `IMAGE_MODEL`, such as `http://painter:8000/v1`. Without it a model server that lists the model is asked.",
    ),
    editModel: variable(
      "IMAGE_EDIT_MODEL",
      modelName,
      "The model that edits images, asked by `/v1/images/edits`. Default: `IMAGE_MODEL`.",
    ),
    editBaseUrl: variable(
      "IMAGE_EDIT_BASE_URL",
      serverUrl.optional(),
      "The server of `IMAGE_EDIT_MODEL`. Without it a model server that lists the model is asked.",
    ),
    apiKey: variable(
      "IMAGE_API_KEY",
      headerSecret.optional(),
      "Secret. The servers of `IMAGE_BASE_URL` and `IMAGE_EDIT_BASE_URL` receive it as `Authorization: Bearer`.",
    ),
    qualitySteps: variable(
      "IMAGE_QUALITY_STEPS",
      qualitySteps,
      'JSON: the steps of the diffusion for each `quality`, such as `{"low":8,"medium":20,"high":50}`. A quality that is not in it is sent as it is: SGLang heeds it.',
    ),
    timeoutMs: variable(
      "IMAGE_TIMEOUT_MS",
      milliseconds(300_000, 1_000),
      "The longest time of one image, within `TOOL_TIME_MS`.",
    ),
    keptMs: variable(
      "IMAGE_FILE_DAYS",
      days(30, 1),
      "The days after which an image's file is deleted. After that its item has no `result`.",
    ),
  },
} satisfies Section;

/** The settings of images; undefined without an image model. `aliases` are further names of models. */
export function imageConfig(
  { model, baseUrl, editModel, editBaseUrl, apiKey, ...values }: ValuesOf<typeof images>,
  servers: ServerValues,
  network: OperatorNetwork,
  aliases: Readonly<Record<string, string>>,
) {
  const draws = ownModel(model, { url: baseUrl, apiKey }, "images", network, servers);
  if (!draws) return undefined;
  const edits = ownModel(editModel, { url: editBaseUrl, apiKey }, "image-edits", network, servers) ?? draws;
  const own = [draws.name, edits.name];
  const further = Object.keys(aliases).filter((alias) => own.includes(aliases[alias] ?? ""));
  /** The names that requests may use for the two models. */
  const names: ReadonlySet<string> = new Set([...own, ...further]);
  return { ...values, draws, edits, names };
}
