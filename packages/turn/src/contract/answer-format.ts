import { conforms, mayConform } from "@responses-edge/grammar";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";

/**
 * The format that a request asks of the final text of its answer. By OpenAI's rule a format applies to the text, never
 * to the calls before it. If both vLLM's `structured_outputs` and `text.format` are given, the format counts.
 */
export interface AnswerFormat {
  /** Names the field that a text in another format violates, in words for the client. */
  fault: string;
  /** Tells whether a text certainly has the format. */
  accepts(text: string): boolean;
  /** Tells whether a text may have the format: false only if it certainly has not. */
  mayAccept(text: string): boolean;
}

/**
 * The format of a request's final text; undefined for free text, and for structural tags, which say where they apply.
 * Only the model server runs the client's regular expressions and grammars: here a text is never known to match them or
 * not to.
 */
export function answerFormat({ text, structured_outputs: outputs }: CreateRequest): AnswerFormat | undefined {
  const format = text?.format;
  if (format?.type === "json_object") return ofSchema("'text.format': its text is no JSON object", OBJECT);
  if (format?.type === "json_schema") {
    return ofSchema(`'text.format': its text does not match the schema '${format.name}'`, format.schema);
  }
  if (outputs == null || outputs.structural_tag != null) return undefined;
  const { choice, json } = outputs;
  if (Array.isArray(choice)) {
    const isOne = (text: string) => choice.includes(text);
    return { fault: "'structured_outputs.choice': its text is none of these", accepts: isOne, mayAccept: isOne };
  }
  if (json != null) {
    const schema = typeof json === "string" ? parsed(json) : json;
    return ofSchema("'structured_outputs.json': its text does not match it", schema);
  }
  if (outputs.json_object === true) return ofSchema("'structured_outputs': its text is no JSON object", OBJECT);
  return { fault: "'structured_outputs'", accepts: () => false, mayAccept: () => true };
}

const OBJECT = { type: "object" };

function ofSchema(fault: string, schema: unknown): AnswerFormat {
  return { fault, accepts: (text) => conforms(text, schema), mayAccept: (text) => mayConform(text, schema) };
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
