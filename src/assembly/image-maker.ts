import {
  type Drawing,
  drawnImage,
  editForm,
  generationBody,
  type ImageMaker,
  MAX_IMAGE_BYTES,
} from "@responses-edge/hosted-tools/image-generation";
import type { Config } from "../config/index.ts";
import { askOwnModel } from "./own-model.ts";
import { fetchFile } from "./remote-file.ts";

/** Draws on the operator's image servers; undefined if there are none. */
export function imageMaker(config: Config): ImageMaker | undefined {
  const { images } = config.tools;
  if (!images) return undefined;
  return {
    async draw(asked, signal) {
      const isNew = asked.images.length === 0;
      const model = isNew ? images.draws : images.edits;
      const steps = images.qualitySteps[asked.quality ?? "auto"];
      // A model with configured steps gets the steps of the quality, not the quality itself.
      const quality = steps === undefined ? asked.quality : undefined;
      const drawing = { ...asked, model: model.name, steps, quality };
      const { body, contentType } = isNew ? generation(drawing) : await editForm(drawing);
      const options = { config, signal, contentType, withinMs: images.timeoutMs };
      const answer = await askOwnModel(model, `/images/${isNew ? "generations" : "edits"}`, body, options);
      return drawnImage(answer, drawing, MAX_IMAGE_BYTES);
    },
    async fetch(url, signal) {
      const hold = () => {};
      const { bytes } = await fetchFile(url, { config, signal, maxBytes: MAX_IMAGE_BYTES, hold, param: "input" });
      return bytes;
    },
  };
}

function generation(drawing: Drawing): { body: string; contentType: string } {
  return { body: JSON.stringify(generationBody(drawing)), contentType: "application/json" };
}
