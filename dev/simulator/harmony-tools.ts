import type { HarmonyMessage } from "./harmony-prompt.ts";
import { isObject, type Json, type JsonObject, parseJson } from "./json.ts";

/** A tool of the client, in the form of the developer message. */
export type HarmonyFunction = { name: string; schema: Json };

const NO_ARGUMENTS: JsonObject = { type: "object", properties: {} };
/** The name of a property. It may be `__proto__`. */
const OWN = { enumerable: true, configurable: true, writable: true };
const NAMESPACE = /^namespace functions \{$([\s\S]*?)^\} \/\/ namespace functions$/m;
const DECLARATION = /^type (\S+) = \(/gm;

/** The functions of all developer messages. */
export function functionsOf(messages: readonly HarmonyMessage[]): HarmonyFunction[] {
  const developer = messages.filter((message) => message.role === "developer");
  return developer.flatMap(({ content }) => {
    const block = NAMESPACE.exec(content)?.[1] ?? "";
    return [...block.matchAll(DECLARATION)].map(({ 0: opening, 1: name = "", index }) => ({
      name,
      schema: readParameters(block.slice(index + opening.length)),
    }));
  });
}

/** The built-in namespaces that the system messages offer. */
export function builtinsOf(messages: readonly HarmonyMessage[]): string[] {
  const system = messages.filter((message) => message.role === "system");
  return ["browser", "python", "container"].filter((name) =>
    system.some(({ content }) => new RegExp(`^## ${name}$`, "m").test(content)),
  );
}

/** The schema in the `# Response Formats` section of the last developer message that has one. */
export function responseSchemaOf(messages: readonly HarmonyMessage[]): Json | undefined {
  for (const { role, content } of messages.toReversed()) {
    const at = role === "developer" ? content.lastIndexOf("# Response Formats\n") : -1;
    const schema = at < 0 ? -1 : content.indexOf("\n{", at);
    if (schema >= 0) return tryJson(content.slice(schema));
  }
  return undefined;
}

function tryJson(text: string): Json | undefined {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

function readParameters(text: string): Json {
  if (text.startsWith(")")) return NO_ARGUMENTS;
  const schema = new TypeReader(text.replace(/^_:/, "")).type();
  return isObject(schema) && schema.type === "object" ? schema : NO_ARGUMENTS;
}

/** `schema` in as many arrays as `last` is. */
function inArraysOf(last: Json | undefined, schema: JsonObject): JsonObject {
  return isObject(last) && last.type === "array" && last.items !== undefined
    ? { type: "array", items: inArraysOf(last.items, schema) }
    : schema;
}

/**
 * Reads the TypeScript-like types of a tools block as the JSON Schema that they may come from. Never fails: a type that
 * it cannot read becomes the schema of any value.
 */
class TypeReader {
  #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Alternatives, `null` among them. */
  type(): JsonObject {
    const alternatives: JsonObject[] = [];
    const listed = this.#skip("|");
    do alternatives.push(this.#suffixed());
    while (this.#skip("|"));
    const rest = alternatives.filter((schema) => schema.type !== "null");
    const [first] = rest;
    if (first === undefined) return { type: "null" };
    // The renderer writes the choices of an array's elements without brackets: `"a" | "b"[]`.
    return listed || first.type === "array" ? first : inArraysOf(rest.at(-1), first);
  }

  #suffixed(): JsonObject {
    let schema = this.#primary();
    while (this.#skip("[]")) schema = { type: "array", items: schema };
    return schema;
  }

  #primary(): JsonObject {
    if (this.#skip("{")) return this.#object();
    if (this.#skip("(")) {
      const inner = this.type();
      this.#skip(")");
      return inner;
    }
    const literal = this.#match(/"[^"]*"/y);
    if (literal !== undefined) return { enum: [literal.slice(1, -1)] };
    const number = this.#match(/-?\d+(?:\.\d+)?/y);
    if (number !== undefined) return { enum: [Number(number)] };
    const name = this.#match(/[\w$]+/y);
    switch (name) {
      case "string":
      case "number":
      case "boolean":
      case "null":
      case "array":
        return { type: name };
      case "object":
        return NO_ARGUMENTS;
      case "true":
      case "false":
        return { enum: [name === "true"] };
      case "Array": {
        const items = this.#skip("<") ? this.type() : {};
        this.#skip(">");
        return { type: "array", items };
      }
      default:
        return {};
    }
  }

  #object(): JsonObject {
    const properties: JsonObject = {};
    const required: string[] = [];
    while (!this.#skip("}")) {
      const key = this.#match(/[^\n]+?(?=\??:)/y)?.trim();
      if (key === undefined) {
        // The second line of a description. The renderer writes it without slashes.
        if (this.#match(/[^\n]+/y) === undefined) break;
        continue;
      }
      const optional = this.#skip("?");
      this.#skip(":");
      Object.defineProperty(properties, key, { ...OWN, value: this.type() });
      if (!optional) required.push(key);
      this.#skip(",");
    }
    return { type: "object", properties, required };
  }

  #skip(token: string): boolean {
    this.#space();
    const found = this.#text.startsWith(token, this.#at);
    if (found) this.#at += token.length;
    return found;
  }

  #match(pattern: RegExp): string | undefined {
    this.#space();
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found !== undefined) this.#at += found.length;
    return found;
  }

  /** White space and comments. */
  #space(): void {
    const blank = /(?:\s|\/\/[^\n]*)*/y;
    blank.lastIndex = this.#at;
    this.#at += blank.exec(this.#text)?.[0].length ?? 0;
  }
}
