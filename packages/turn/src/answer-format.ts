import { conforms, mayConform } from "@responses-edge/json-text";
import type { CreateRequest } from "@responses-edge/responses-api/create-request";

/**
 * The format that a request asks of the final text of its answer. OpenAI's rule is that a format binds the text and never the calls
 * before it. Where vLLM's `structured_outputs` and `text.format` are both there, the format counts.
 */
export interface AnswerFormat {
  /** Tells which field a text outside of the format does not keep to, in words for the client. */
  fault: string;
  /** Tells whether a text keeps to it for sure. */
  accepts(text: string): boolean;
  /** Tells whether a text may keep to it: false only where it surely does not. */
  mayAccept(text: string): boolean;
}

/**
 * The format of a request's final text; undefined for free text and for structural tags, which say where they bind. Regular
 * expressions and grammars of the client's are for the model server to run: their texts are never known to keep to them,
 * and never known not to.
 */
export function answerFormat({ text, structured_outputs: outputs }: CreateRequest): AnswerFormat | undefined {
  const format = text?.format;
  if (format?.type === "json_object") return ofSchema("'text.format': its text is no JSON object", OBJECT);
  if (format?.type === "json_schema") {
    return ofSchema(`'text.format': its text does not keep to the schema '${format.name}'`, format.schema);
  }
  if (outputs == null || outputs.structural_tag != null) return undefined;
  const { choice, json } = outputs;
  if (Array.isArray(choice)) {
    const isOne = (text: string) => choice.includes(text);
    return { fault: "'structured_outputs.choice': its text is none of these", accepts: isOne, mayAccept: isOne };
  }
  if (json != null) {
    const schema = typeof json === "string" ? parsed(json) : json;
    return ofSchema("'structured_outputs.json': its text does not keep to it", schema);
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
