import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import openapiTypescript, { astToString, type SchemaObject } from "openapi-typescript";

/** Makes `api-types.d.ts`: the types of the API's objects that the console uses. `npm run reference` writes it. */

const NOTE =
  "/** `npm run reference` writes this file from the API's description: the types that `src` imports, and those in them. */";

const source = fileURLToPath(new URL("src", import.meta.url));

/**
 * The text of the file.
 * @param schemas the description's components, by name
 */
export async function apiTypes(schemas: Record<string, object>): Promise<string> {
  const used = withTheirParts(importedNames(), schemas);
  const described = Object.entries(schemas).filter(([name]) => used.has(name));
  const components = { schemas: Object.fromEntries(described) as Record<string, SchemaObject> };
  const nodes = await openapiTypescript(
    { openapi: "3.1.1", info: { title: "", version: "" }, paths: {}, components },
    { rootTypes: true, rootTypesNoSchemaPrefix: true, silent: true },
  );
  const text = astToString(nodes).replaceAll(/\s*\/\*\*[\s\S]*?\*\/(?=\n)/g, "");
  return `${NOTE}\n${text.slice(text.indexOf("export interface components"))}`;
}

/** The names that the console's modules import from the file. */
function importedNames(): string[] {
  const modules = readdirSync(source).filter((name) => name.endsWith(".ts"));
  return modules.flatMap((name) => {
    const imports = readFileSync(`${source}/${name}`, "utf8").matchAll(
      /import type \{([^}]*)\} from "\.\.\/api-types\.d\.ts"/g,
    );
    const names = [...imports].flatMap(([, list = ""]) => list.split(","));
    return names.map((each) => each.trim().split(" as ")[0] ?? "").filter((each) => each !== "");
  });
}

function withTheirParts(names: readonly string[], schemas: Record<string, object>): Set<string> {
  const found = new Set<string>();
  const waiting = [...names];
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (found.has(name)) continue;
    const schema = schemas[name];
    if (!schema) throw new Error(`The console imports the type ${name}, which the API's description does not have.`);
    found.add(name);
    for (const [, part = ""] of JSON.stringify(schema).matchAll(/#\/components\/schemas\/(\w+)/g)) waiting.push(part);
  }
  return found;
}
