import type { Dialect } from "@responses-edge/engines/dialects/dialect";
import { overLostConnections } from "@responses-edge/engines/lost-connection";
import { ApiError } from "@responses-edge/responses-api/errors";
import { isJsonObject } from "@responses-edge/responses-api/json";
import type { Config } from "../config/index.ts";
import { tenantCacheSalt } from "./affinity.ts";
import { askOwnModel, jsonOf } from "./own-model.ts";

/** Optical character recognition by a model of the pool that reads images (`OCR_MODEL`). */

const QUESTION =
  "Transcribe all text of this page, in its reading order and its own language. Write tables as Markdown. Answer with the text of the page only, without remarks; if it has none, answer with nothing.";

/** The longest answer: a dense page has about 1,500 tokens. */
const MAX_TOKENS = 4_096;

/** The longest text of a page that is kept. UTF-16 units. */
const MAX_LENGTH = 64 * 1024;

const CUT = "\n[The rest of this page was not read.]";

/** Reads the text of a picture. */
export type ReadPicture = (jpeg: string) => Promise<string>;

/**
 * Makes the function that has pictures read for a tenant; undefined where the operator has named no model. It gives the text of a JPEG, as
 * base64; empty if there is none. It rejects with the 503 `ocr_unavailable` while the model does not answer, with the ApiError of a model
 * server that refuses the picture, and with the reason of an aborted `signal`.
 */
export function pictureReader(config: Config, tenant: string, signal: AbortSignal): ReadPicture | undefined {
  const { ocrModel: name } = config.files;
  if (name === undefined) return undefined;
  return async (jpeg) => {
    const content = [
      { type: "image_url", image_url: { url: `data:image/jpeg;base64,${jpeg}` } },
      { type: "text", text: QUESTION },
    ];
    const question = { model: name, messages: [{ role: "user", content }], max_tokens: MAX_TOKENS, temperature: 0 };
    const body = ({ separatesTenants }: Dialect) =>
      JSON.stringify({ ...question, ...(separatesTenants === true && { cache_salt: tenantCacheSalt(tenant) }) });
    const ask = () => askOwnModel({ name, server: undefined }, "/chat/completions", body, { config, signal });
    try {
      return textOf(jsonOf(await overLostConnections(ask, signal)));
    } catch (error) {
      signal.throwIfAborted();
      throw error instanceof ApiError && (error.status >= 500 || error.status === 429) ? unavailable() : error;
    }
  };
}

function textOf({ choices }: Readonly<Record<string, unknown>>): string {
  const choice: unknown = Array.isArray(choices) ? choices[0] : undefined;
  const message = isJsonObject(choice) ? choice.message : undefined;
  const content = isJsonObject(message) ? message.content : undefined;
  if (!isJsonObject(choice) || typeof content !== "string") return "";
  const text = content.slice(0, MAX_LENGTH).toWellFormed().trim();
  return choice.finish_reason === "length" || content.length > MAX_LENGTH ? text + CUT : text;
}

function unavailable(): ApiError {
  const message = "The text of scanned pages cannot be read at the moment. Please retry in a few seconds.";
  return new ApiError({ status: 503, message, code: "ocr_unavailable", headers: { "retry-after": "5" } });
}
