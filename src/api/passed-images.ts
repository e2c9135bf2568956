import { passedImageFault } from "@responses-edge/hosted-tools/image-generation";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { configOf } from "../assembly/own-model.ts";
import type { Config, PassthroughEndpoint } from "../config/index.ts";
import type { Caller } from "./transport.ts";

/**
 * The image servers' own routes, where they differ from others that are passed on: they have their own servers, which
 * get only listed fields.
 */

export function isOfImages(name: PassthroughEndpoint): boolean {
  return name === "images/generations" || name === "images/edits";
}

/** The model of a request for images that names none. */
export function imageModel({ config: { tools } }: Caller, name: PassthroughEndpoint): string | undefined {
  if (!isOfImages(name)) return undefined;
  return name === "images/edits" ? tools.images?.edits.name : tools.images?.draws.name;
}

/** The number of images that a request asks for, by its `n`; undefined for other endpoints. */
export function imagesIn(name: PassthroughEndpoint, n: unknown): number | undefined {
  return isOfImages(name) ? Number(n ?? 1) : undefined;
}

/** Throws the 400 of a field that image servers do not get. */
export function checkImageFields(
  { config }: Caller,
  fields: Iterable<[name: string, value: unknown]>,
  isFile: (value: unknown) => boolean,
): void {
  const read = [...fields].map(([field, value]) => [field, value, isFile(value)] as const);
  const fault = passedImageFault(read, (field) => config.vllmExtraFields.includes(field));
  if (fault) throw invalidRequest(fault.field, fault.message, "unsupported_parameter");
}

/** The configuration for a passed request: an image model with its own server has only that server. */
export function imageConfigFor({ config }: Caller, name: PassthroughEndpoint, model: string | undefined): Config {
  const { images } = config.tools;
  if (!images || !isOfImages(name)) return config;
  const own = [images.draws, images.edits].find((each) => each.name === model);
  return own ? { ...configOf(own, config), firstByteTimeoutMs: images.timeoutMs } : config;
}
