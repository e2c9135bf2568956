import { PROGRAM_TOOL } from "@responses-edge/responses-api/items/program";
import { isJsonObject, type JsonObject } from "@responses-edge/responses-api/json";
import type { FunctionTool } from "@responses-edge/responses-api/tools";

/** The tool that takes a program, as models see it: a function, whose description lists the tools that programs may call. */

const ABOUT = `Runs a JavaScript program that calls tools. Only what the program writes with console.log and what it returns comes back to you, not the results of its calls: call tools in loops, in parallel (Promise.all) or one after another, and return the little that you need.

\`code\` is the body of an async function: use await, and return the result. A call that fails throws. There is no network, file system or import.`;

const PARAMETERS: JsonObject = {
  type: "object",
  properties: { code: { type: "string", description: "The JavaScript program." } },
  required: ["code"],
  additionalProperties: false,
};

/** A tool that programs may call. */
export interface ProgramCallable {
  tool: FunctionTool;
  /** The schema of its output, where that is JSON. */
  output?: JsonObject | undefined;
  /** It takes a text, not an object. */
  takesText?: boolean;
}

/** The function of the tool; `callable` are those that its programs may call. */
export function programFunction(callable: readonly ProgramCallable[]): FunctionTool {
  const listed = callable.map(signatureOf);
  const list = listed.length === 0 ? "No tool can be called now." : `declare const tools: {\n${listed.join("\n")}\n};`;
  const description = `${ABOUT}\n\n${list}`;
  return { type: "function", name: PROGRAM_TOOL, description, parameters: PARAMETERS, strict: null };
}

function signatureOf({ tool, output: schema, takesText }: ProgramCallable): string {
  const output = schema ? typeOf(schema) : "string";
  if (takesText) return declared(tool, "input: string", output);
  const { parameters } = tool;
  const fields = isJsonObject(parameters?.properties) ? Object.keys(parameters.properties) : undefined;
  if (fields?.length === 0) return declared(tool, "", output);
  return declared(tool, `args: ${typeOf(parameters ?? {})}`, output);
}

function declared({ name, description }: FunctionTool, parameters: string, output: string): string {
  const about = description ? `  /** ${description.replaceAll("*/", "* /").replaceAll("\n", "\n   * ")} */\n` : "";
  return `${about}  ${keyOf(name)}(${parameters}): Promise<${output}>;`;
}

function keyOf(name: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name);
}

/** Types of one schema, and levels within it, that are written; what is beyond them is `unknown`. */
const MAX_TYPES = 400;
const MAX_DEPTH = 8;

/** A JSON schema as a TypeScript type. A part that TypeScript has no form for is left out, or `unknown`. */
export function typeOf(schema: JsonObject): string {
  return new TypeWriter(schema).write(schema, 0);
}

class TypeWriter {
  readonly #root: JsonObject;
  #left = MAX_TYPES;

  constructor(root: JsonObject) {
    this.#root = root;
  }

  write(schema: unknown, depth: number): string {
    this.#left -= 1;
    if (!isJsonObject(schema) || depth > MAX_DEPTH || this.#left < 0) return "unknown";
    if (typeof schema.$ref === "string") return this.write(this.#referred(schema.$ref), depth + 1);
    if ("const" in schema) return literal(schema.const);
    if (Array.isArray(schema.enum)) return schema.enum.map(literal).join(" | ");
    const options = schema.anyOf ?? schema.oneOf;
    if (Array.isArray(options)) return this.#joined(options, " | ", depth);
    if (Array.isArray(schema.allOf)) return this.#joined(schema.allOf, " & ", depth);
    if (Array.isArray(schema.type)) {
      return this.#joined(
        schema.type.map((type: unknown) => ({ ...schema, type })),
        " | ",
        depth,
      );
    }
    switch (schema.type) {
      case "string":
      case "boolean":
      case "null":
        return schema.type;
      case "integer":
      case "number":
        return "number";
      case "array":
        return `Array<${this.write(schema.items, depth + 1)}>`;
      default:
        return schema.type === "object" || isJsonObject(schema.properties) ? this.#object(schema, depth) : "unknown";
    }
  }

  #object({ properties, required, additionalProperties: others }: JsonObject, depth: number): string {
    const needed = new Set(Array.isArray(required) ? required : []);
    const fields = Object.entries(isJsonObject(properties) ? properties : {}).map(([name, each]) => {
      const about = isJsonObject(each) && typeof each.description === "string" ? each.description : "";
      const comment = about === "" ? "" : ` /* ${about.replaceAll("*/", "* /").replaceAll("\n", " ")} */`;
      return `${keyOf(name)}${needed.has(name) ? "" : "?"}: ${this.write(each, depth + 1)};${comment}`;
    });
    if (fields.length > 0) return `{ ${fields.join(" ")} }`;
    return `Record<string, ${isJsonObject(others) ? this.write(others, depth + 1) : "unknown"}>`;
  }

  #joined(options: readonly unknown[], by: string, depth: number): string {
    const types = [...new Set(options.map((each) => this.write(each, depth + 1)))];
    return types.length === 1 ? (types[0] ?? "unknown") : `(${types.join(by)})`;
  }

  #referred(reference: string): unknown {
    let at: unknown = this.#root;
    for (const part of reference.replace(/^#\/?/, "").split("/")) {
      if (part === "") continue;
      const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
      at = isJsonObject(at) && Object.hasOwn(at, key) ? at[key] : undefined;
    }
    return at;
  }
}

function literal(value: unknown): string {
  return JSON.stringify(value) ?? "unknown";
}
