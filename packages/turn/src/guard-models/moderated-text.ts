import { parseItemId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { fileText } from "@responses-edge/responses-api/items/file-text";
import { answeredId, type Item, isServerCall, partsOf } from "@responses-edge/responses-api/items/registry";
import type { Prompt } from "../contract/engine.ts";
import type { Judged } from "./judgement.ts";

/** The texts of a prompt that a guard judges. A field that is not named here is judged, so that no new one gets around it. */

/** Fields of items without a text for the model: names within the API, addresses, and data of images, sounds and videos. */
const NO_TEXTS: ReadonlySet<string> = new Set([
  ...["id", "type", "role", "status", "phase", "call_id", "file_id", "container_id", "approval_request_id", "step"],
  ...["image_url", "video_url", "file_url", "detail", "format", "data", "result", "encrypted_content"],
  ...["logprobs", "annotations"],
]);

/** The judged texts of items: all that a model may read, or has written. Sounds and videos are not judged. */
export function moderatedText(items: Iterable<object>): string {
  const texts: string[] = [];
  for (const item of items) addTexts(item, texts);
  return texts.join("\n");
}

function addTexts(value: unknown, texts: string[]): void {
  if (typeof value === "string") {
    if (value !== "") texts.push(value);
    return;
  }
  if (typeof value !== "object" || value === null) return;
  if ("type" in value && value.type === "input_file") {
    texts.push(textOfFile(value as InputFile));
    return;
  }
  for (const [field, inner] of Object.entries(value)) {
    const isData = field === "file_content" && typeof inner === "string" && inner.startsWith("data:");
    if (!isData && !NO_TEXTS.has(field)) addTexts(inner, texts);
  }
}

type InputFile = Parameters<typeof fileText>[0];

function textOfFile(file: InputFile): string {
  const { file_content: read, file_data: data, filename } = file;
  const isText = read === undefined ? data !== undefined : !read.startsWith("data:");
  return [filename ?? "", isText ? fileText(file) : ""].filter((each) => each !== "").join("\n");
}

/** The images of items, and the pictures of files' pages, by their URLs: each once. */
export function moderatedImages(items: Iterable<{ type: string }>): string[] {
  const urls = new Set<string>();
  for (const item of items as Iterable<Item>) {
    for (const part of partsOf(item).parts) {
      if (part.type === "input_file") for (const { url } of part.file_pictures ?? []) urls.add(url);
      if (part.type !== "input_image") continue;
      const { image_url: url, file_content: content } = part as { image_url?: string; file_content?: string };
      const image = url ?? content;
      if (image !== undefined) urls.add(image);
    }
  }
  return [...urls];
}

/** Items whose ids show which turn has put them out. */
type NamedItems = readonly { type: string; id?: string | undefined }[];

/**
 * Gives the texts and images of a turn's prompts that were not judged before, in the first round and in later ones. An earlier turn has
 * judged its own input: in the `history`, which has ids of this server's, later items than the last output of a model are new. The
 * turn's own output is not input, except for the outputs of the calls that this server has answered.
 */
export class UnjudgedInput {
  readonly #address: TurnAddress;
  readonly #known: WeakSet<object>;
  #tools = "";
  #isFirst = true;

  constructor(history: NamedItems, address: TurnAddress) {
    const last = history.findLastIndex(({ id }) => id !== undefined && parseItemId(id)?.side === "output");
    this.#known = new WeakSet(history.slice(0, last + 1));
    this.#address = address;
  }

  /** The new items of a prompt, in the first round with the instructions; empty if there are none. */
  items({ items, request }: Prompt): Omit<Judged, "side">[] {
    const fresh = items.filter((item) => !this.#known.has(item) && !this.#isOwnOutput(item));
    for (const item of items) this.#known.add(item);
    const isFirst = this.#isFirst;
    this.#isFirst = false;
    if (!isFirst && fresh.length === 0) return [];
    const before = isFirst ? [request.instructions ?? "", moderatedText(request.previous_input_messages ?? [])] : [];
    const text = [...before, moderatedText(fresh)].filter((each) => each !== "").join("\n");
    return [{ text, images: moderatedImages(fresh) }];
  }

  /** The tools of a prompt and the format of its answer, with their names and schemas; empty if they were judged before. */
  tools({ request, pluginTools }: Prompt): string {
    const { tools, text, chat_template_kwargs: template } = request;
    const described = (tools ?? []).filter((tool) => tool.type !== "mcp" && ("name" in tool || "description" in tool));
    const format = text?.format?.type === "json_schema" ? [text.format] : [];
    const parts = [...described, ...(pluginTools?.functions ?? []), ...format, ...(template ? [template] : [])];
    const now = parts.length === 0 ? "" : JSON.stringify(parts);
    if (now === this.#tools) return "";
    this.#tools = now;
    return now;
  }

  #isOwnOutput(item: Item): boolean {
    const address = item.id === undefined ? undefined : parseItemId(item.id);
    const { home, turn } = this.#address;
    if (address?.side !== "output" || address.home !== home || address.turn !== turn) return false;
    // Results of tools are in calls of this server's, and in outputs that its client has sent meanwhile.
    return !isServerCall(item) && (answeredId(item) === undefined || item.type === "program_output");
  }
}
