import { passedImageFault } from "@responses-edge/image-generation";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { configOf } from "../assembly/own-model.ts";
import type { Config, PassthroughEndpoint } from "../config/index.ts";
import type { Caller } from "./transport.ts";

/** The image servers' own routes, as far as they differ from others that are passed on: they have servers of their own, and only listed fields go there. */

export function isOfImages(name: PassthroughEndpoint): boolean {
  return name === "images/generations" || name === "images/edits";
}

/** The model of a request for images that names none. */
export function imageModel({ config: { tools } }: Caller, name: PassthroughEndpoint): string | undefined {
  if (!isOfImages(name)) return undefined;
  return name === "images/edits" ? tools.images?.edits.name : tools.images?.draws.name;
}

/** The images that a request asks for, by its `n`; undefined of one for something else. */
export function imagesIn(name: PassthroughEndpoint, n: unknown): number | undefined {
  return isOfImages(name) ? Number(n ?? 1) : undefined;
}

/** Throws the 400 of a field that no image server gets. */
export function checkImageFields(
  { config }: Caller,
  fields: Iterable<[name: string, value: unknown]>,
  isFile: (value: unknown) => boolean,
): void {
  const read = [...fields].map(([field, value]) => [field, value, isFile(value)] as const);
  const fault = passedImageFault(read, (field) => config.vllmExtraFields.includes(field));
  if (fault) throw invalidRequest(fault.field, fault.message, "unsupported_parameter");
}

/** The configuration by which a passed request is asked: an image model with a server of its own has that one alone. */
export function imageConfigFor({ config }: Caller, name: PassthroughEndpoint, model: string | undefined): Config {
  const { images } = config.tools;
  if (!images || !isOfImages(name)) return config;
  const own = [images.draws, images.edits].find((each) => each.name === model);
  return own ? { ...configOf(own, config), firstByteTimeoutMs: images.timeoutMs } : config;
}
