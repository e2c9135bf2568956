/**
 * The fields that clients may send to an image server themselves. Servers have many more, some of which read or write
 * their files, load adapters, or fetch addresses (SGLang's `perf_dump_path`, vLLM-Omni's `lora`, LocalAI's `file`):
 * only the listed ones are forwarded.
 */
const PASSED: ReadonlySet<string> = new Set([
  ...["model", "prompt", "n", "size", "quality", "style", "user", "safety_identifier", "moderation", "response_format"],
  ...["output_format", "output_compression", "background", "input_fidelity", "image", "image[]"],
  ...["negative_prompt", "num_inference_steps", "step", "guidance_scale", "true_cfg_scale", "flow_shift", "seed"],
]);

/** Fields of an edit that are files. A text in them could be an address. */
const FILES: ReadonlySet<string> = new Set(["image", "image[]"]);

/** OpenAI's limit on images of one request. */
const MAX_IMAGES = 10;

/** A refused field, and the reason. */
export interface PassedFault {
  field: string;
  message: string;
}

/** A field's value: a text, or `file` for the bytes of a file. */
export type PassedField = readonly [name: string, value: unknown, isFile: boolean];

/**
 * The first field of a request for images that cannot be forwarded; undefined if all can. `mayPass` tells whether the
 * operator allows a field that is not in the list.
 */
export function passedImageFault(
  fields: Iterable<PassedField>,
  mayPass: (field: string) => boolean,
): PassedFault | undefined {
  for (const [field, value, isFile] of fields) {
    if (value == null || mayPass(field)) continue;
    if (field === "stream" || field === "partial_images") {
      if (isOff(value)) continue;
      return { field, message: `'${field}' is not supported by this server: no image server gives partial images.` };
    }
    if (!PASSED.has(field)) return { field, message: `'${field}' is not supported by this server for images.` };
    if (FILES.has(field) !== isFile) {
      const message = isFile ? `'${field}' must be a text, not a file.` : `'${field}' must be a file.`;
      return { field, message };
    }
    if (field === "response_format" && value !== "b64_json") {
      return { field, message: "'response_format' must be 'b64_json': clients cannot reach the image server's URLs." };
    }
    if (field === "n" && !(Number.isInteger(Number(value)) && Number(value) >= 1 && Number(value) <= MAX_IMAGES)) {
      return { field, message: `'n' must be a whole number from 1 to ${MAX_IMAGES}.` };
    }
  }
  return undefined;
}

function isOff(value: unknown): boolean {
  return value === false || value === 0 || value === "false" || value === "0";
}
