import { conforms, mayConform } from "@responses-edge/json-text";
import type { CreateRequest } from "../../protocol/create-request.ts";

/**
 * What binds the final text of an answer that may call tools. OpenAI's rule is that a format binds the text and never
 * the calls. vLLM's grammars govern all that a model says (before 0.32 always, later where no tool is strict): with one,
 * no tool could be called.
 */
export interface FinalFormat {
  /** Whether a text that was written freely keeps to it for sure. */
  accepts(text: string): boolean;
  /** Whether a text may keep to it. */
  mayAccept(text: string): boolean;
}

/** The format of a request's final text, or undefined for free text and for structural tags, which say where they bind. */
export function finalFormat({ text: answer, structured_outputs: outputs }: CreateRequest): FinalFormat | undefined {
  const format = answer?.format;
  if (format?.type === "json_object") return ofSchema(OBJECT);
  if (format?.type === "json_schema") return ofSchema(format.schema);
  if (outputs == null || outputs.structural_tag != null) return undefined;
  const { choice, json } = outputs;
  if (Array.isArray(choice))
    return { accepts: (text) => choice.includes(text), mayAccept: (text) => choice.includes(text) };
  if (json != null) return ofSchema(typeof json === "string" ? parsed(json) : json);
  if (outputs.json_object === true) return ofSchema(OBJECT);
  // A regular expression or a grammar of the client's is for vLLM to run.
  return { accepts: () => false, mayAccept: () => true };
}

const OBJECT = { type: "object" };

function ofSchema(schema: unknown): FinalFormat {
  return { accepts: (text) => conforms(text, schema), mayAccept: (text) => mayConform(text, schema) };
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
