import { type ImageFormat, imageFormatOf } from "./header.ts";

/** The requests of OpenAI's image routes, with fields of vLLM-Omni 0.30, SGLang 0.5.23 and LocalAI. */

/** One requested image. */
export interface Drawing {
  model: string;
  prompt: string;
  /** `WIDTHxHEIGHT`; default: the server's own. */
  size?: string | undefined;
  /** Sent unchanged: SGLang supports it, others ignore it. */
  quality?: string | undefined;
  /** Steps of the diffusion; default: the model's own number. */
  steps?: number | undefined;
  background?: "transparent" | "opaque" | undefined;
  format: Exclude<ImageFormat, "gif">;
  /** Percent, for JPEG and WebP. */
  compression?: number | undefined;
  /** The images to edit. Without any a new one is drawn. */
  images: readonly Uint8Array<ArrayBuffer>[];
}

/** The fields of both routes, without the images. */
function fieldsOf(drawing: Drawing): Record<string, string | number> {
  const { model, prompt, size, quality, steps, background, format, compression } = drawing;
  return {
    model,
    prompt,
    n: 1,
    // SGLang's default is a URL of its own.
    response_format: "b64_json",
    // SGLang's default is JPEG, that of others PNG.
    output_format: format,
    ...(size !== undefined && { size }),
    ...(quality !== undefined && { quality }),
    ...(background !== undefined && { background }),
    ...(compression !== undefined && { output_compression: compression }),
    // LocalAI calls it `step`.
    ...(steps !== undefined && { num_inference_steps: steps, step: steps }),
  };
}

/** The JSON body of `/v1/images/generations`. */
export function generationBody(drawing: Drawing): Record<string, string | number> {
  return fieldsOf(drawing);
}

/** The form of `/v1/images/edits`. Several images are several fields `image`, which vLLM-Omni and SGLang both read. */
export async function editForm(drawing: Drawing): Promise<{ body: Uint8Array<ArrayBuffer>; contentType: string }> {
  const form = new FormData();
  for (const [name, value] of Object.entries(fieldsOf(drawing))) form.set(name, String(value));
  for (const [index, bytes] of drawing.images.entries()) {
    const format = imageFormatOf(bytes) ?? "png";
    form.append("image", new Blob([bytes], { type: `image/${format}` }), `image-${index + 1}.${format}`);
  }
  const written = new Response(form);
  const contentType = written.headers.get("content-type") ?? "multipart/form-data";
  return { body: new Uint8Array(await written.arrayBuffer()), contentType };
}
