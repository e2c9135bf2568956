import { conforms } from "@responses-edge/json-text";
import type { CreateRequest } from "../../protocol/create-request.ts";

/**
 * What binds the final text of an answer that may call tools. OpenAI's rule is that a format binds the text and never
 * the calls. vLLM's grammars govern all that a model says (before 0.32 always, later where no tool is strict): with one,
 * no tool could be called.
 */
export interface FinalFormat {
  /** Whether a text that was written freely keeps to it for sure. */
  accepts(text: string): boolean;
}

/** The format of a request's final text, or undefined for free text and for structural tags, which say where they bind. */
export function finalFormat({ text, structured_outputs: outputs }: CreateRequest): FinalFormat | undefined {
  const format = text?.format;
  if (format?.type === "json_object") return { accepts: isJsonObject };
  if (format?.type === "json_schema") return { accepts: (answer) => conforms(answer, format.schema) };
  if (outputs == null || outputs.structural_tag != null) return undefined;
  const { choice, json } = outputs;
  if (Array.isArray(choice)) return { accepts: (answer) => choice.includes(answer) };
  if (json != null) return { accepts: (answer) => conforms(answer, typeof json === "string" ? parsed(json) : json) };
  if (outputs.json_object === true) return { accepts: isJsonObject };
  // A regular expression or a grammar of the client's is for vLLM to run.
  return { accepts: () => false };
}

function isJsonObject(text: string): boolean {
  return conforms(text, { type: "object" });
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
