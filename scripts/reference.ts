/**
 * `npm run reference`: writes the pages of docs/reference/ from the declarations of endpoints, of a create's fields and of variables, and
 * the table of docs/model-servers.md from those of kinds of servers. It also writes the types of the console.
 * With `--check` it writes nothing, names the pages that differ from their declarations, and ends with 1.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { dirname, join } from "node:path";
import { requestFields, vllmFields } from "@responses-edge/responses-api/create-fields";
import { z } from "zod";
import { configSchema } from "../cli/configuration/config-schema.ts";
import { SERVE_SECTIONS } from "../cli/configuration/serve-settings.ts";
import { root } from "../cli/serve/installation.ts";
import { apiTypes } from "../packages/console/generate-types.ts";
import { SECTIONS } from "../src/config/index.ts";
import { OPERATORS_FIELDS } from "../src/config/models.ts";
import type { Section } from "../src/config/variable.ts";
import { modelServerTable } from "./model-server-table.ts";

/** The part of an endpoint's declaration that its row shows. */
interface DeclaredEndpoint {
  method: string;
  path: string;
  summary: string;
  operation: { group: string; access: string; counted?: string };
}

interface JsonSchema {
  type?: string | string[];
  description?: string;
  properties?: Record<string, JsonSchema>;
  enum?: unknown[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  items?: JsonSchema;
  maxItems?: number;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  $ref?: string;
}

const NOTE = "<!-- `npm run reference` writes this page. Change the declarations instead. -->";

function page(title: string, ...blocks: string[]): string {
  return `${[`# ${title}`, NOTE, ...blocks].join("\n\n")}\n`;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, head.map(() => "---"), ...rows];
  return lines
    .map((cells) => `| ${cells.map((cell) => cell.replaceAll(/(?<!\\)\|/g, "\\|")).join(" | ")} |`)
    .join("\n");
}

/** A text of a declaration, with links to pages of docs/. */
function linked(text: string): string {
  return text
    .replaceAll(/\[docs\/([^\]]+)\]\(docs\/([^)]+)\)/g, "[$1](../$2)")
    .replaceAll(/\bdocs\/([\w-]+\.md)/g, "[$1](../$1)");
}

/** The default as an operator would write it; "" if the variable has none. */
function defaultOf(schema: z.ZodType): string {
  if (schema instanceof z.ZodPipe) return defaultOf(schema.in as z.ZodType);
  const value: unknown = schema instanceof z.ZodDefault ? schema.def.defaultValue : undefined;
  if (value === undefined || typeof value === "function" || value instanceof Map) return "";
  if (Array.isArray(value)) return value.join(",");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function sectionOf({ title, variables }: Section): string {
  const rows = Object.values(variables).map(({ name, schema, meaning }) => {
    const value = defaultOf(schema);
    return [`\`${name}\``, value === "" ? "–" : `\`${value}\``, meaning];
  });
  return `## ${title}\n\n${table(["Variable", "Default", "Meaning"], rows)}`;
}

function configurationPage(): string {
  return page(
    "Configuration",
    `Variables of the Worker. On Cloudflare they are \`[vars]\` in \`wrangler.toml\`, and secrets are set with \`npx wrangler secret put NAME\`. On your own machine they are
the environment of \`npm start\` and \`npm run serve\`, which also read each of them from a file: \`API_KEYS_FILE=/run/secrets/api_keys\`
([self-hosting.md](../self-hosting.md#variables)).`,
    `The configuration is checked as a whole. A deployment with mistakes answers every request with a 500 \`server_misconfigured\`, which names each variable at fault
and never its value. \`npm start\` and \`npm run serve\` print the mistakes and do not start. An empty variable is an unset one.`,
    `The variables of the last two tables belong to the process on your own machine, not to the Worker: \`npm run serve\` reads them. \`npm start\` reads \`PORT\`,
\`STATE_DIRECTORY\` and \`MIN_FREE_DISK\` of them; with \`TOOL_SERVER=1\` it also runs a tool server.`,
    ...Object.values<Section>(SECTIONS).map(sectionOf),
    ...SERVE_SECTIONS.map(sectionOf),
  );
}

/** The keys that an endpoint accepts, in a cell. */
const KEYS: Record<string, string> = {
  everyone: "none",
  tenant: "API key",
  root: "root key",
  "tenant or root": "API key or root key",
  metrics: "`PROMETHEUS_TOKEN`",
};

function endpointsPage(endpoints: readonly DeclaredEndpoint[], groups: Readonly<Record<string, string>>): string {
  const byGroup = Map.groupBy(endpoints, ({ operation }) => operation.group);
  const sections = Object.entries(groups).map(([group, meaning]) => {
    const rows = (byGroup.get(group) ?? []).map(({ method, path, summary, operation }) => [
      `\`${method} ${path.replaceAll(/:(\w+)(\{[^}]*\})?/g, "{$1}")}\``,
      KEYS[operation.access] ?? operation.access,
      operation.counted ?? "–",
      linked(summary.replace(/^root key: /, "")),
    ]);
    return `## ${group}\n\n${meaning}\n\n${table(["Endpoint", "Key", "Counts as", "What it does"], rows)}`;
  });
  return page(
    "Endpoints",
    `\`GET /openapi.json\` describes each of them with its bodies and answers ([clients.md](../clients.md#the-apis-description-openapi-31)). The limits of a key count a \`turn\` with its tokens,
a \`request\` and a \`read\` ([keys.md](../keys.md#what-counts-as-what)). A deployment without keys (\`ALLOW_ANONYMOUS\`) asks programs of its machine for none.`,
    `Errors have OpenAI's shape \`{"error":{"message","type","param","code"}}\`. \`param\` is the path of the field at fault, such as \`input[2].content[0].image_url\`.
Every answer carries \`x-request-id\`.`,
    ...sections,
  );
}

/** The type of a field and its bounds, in a cell. */
function typeOf(schema: JsonSchema): string {
  const { type, items, minimum, maximum, exclusiveMinimum, maxItems, $ref } = schema;
  const words = schema.enum?.filter((word) => word !== null);
  if (words) return words.map((word) => `\`${word}\``).join(", ");
  const alternatives = (schema.oneOf ?? schema.anyOf)?.filter((each) => each.type !== "null").map(typeOf);
  if (alternatives) return [...new Set(alternatives)].join(" or ");
  if ($ref) return `\`${$ref.split("/").at(-1)}\``;
  const [name = "any"] = [type ?? []].flat().filter((each) => each !== "null");
  if (items)
    return `list of ${typeOf(items)}${maxItems === undefined ? "" : `, at most ${maxItems.toLocaleString("en")}`}`;
  if (minimum !== undefined && maximum !== undefined) return `${name}, ${minimum} to ${maximum}`;
  if (exclusiveMinimum !== undefined) return `${name}, above ${exclusiveMinimum}`;
  return minimum === undefined ? name : `${name}, at least ${minimum}`;
}

/** A field and the fields in it, each with its path. */
function fieldRows(path: string, schema: JsonSchema): string[][] {
  if (schema.properties && !schema.description) {
    return Object.entries(schema.properties).flatMap(([name, inner]) => fieldRows(`${path}.${name}`, inner));
  }
  return [[`\`${path}\``, typeOf(schema), linked(schema.description ?? "")]];
}

/** The paths of a schema's fields that its JSON Schema leaves out, and the error that each gives. */
function refusedFields(schema: z.ZodObject, described: JsonSchema, path: string[] = []): string[][] {
  return Object.entries(schema.shape).flatMap(([name, field]) => {
    let inner: unknown = field;
    while (inner instanceof z.ZodOptional || inner instanceof z.ZodNullable) inner = inner.unwrap();
    const here = [...path, name];
    const found = described.properties?.[name];
    if (inner instanceof z.ZodObject) return refusedFields(inner, found ?? {}, here);
    if (found) return [];
    const body = here.reduceRight<unknown>((value, key) => ({ [key]: value }), "?");
    const { error } = requestFields.safeParse(body);
    return [[`\`${here.join(".")}\``, error?.issues[0]?.message ?? ""]];
  });
}

function fieldsPage(described: JsonSchema): string {
  const all = Object.entries(described.properties ?? {});
  const rows = (isVllms: boolean) =>
    all.filter(([name]) => Object.hasOwn(vllmFields, name) === isVllms).flatMap((field) => fieldRows(...field));
  const head = ["Field", "Type", "Meaning"];
  return page(
    "Fields of create",
    `The body of \`POST /v1/responses\`. \`null\` is the same as an absent field, and unknown fields are ignored, also those of items and tools. Differences from OpenAI and from vLLM
are on purpose; [deviations.md](../deviations.md) lists them. Types in code font are components of \`GET /openapi.json\`.`,
    "A header `Idempotency-Key` makes create safe to repeat for 24 hours: the same request gets the same response, also while that is still being made.",
    `## OpenAI's fields\n\n${table(head, rows(false))}`,
    `## vLLM's fields\n\nThey keep vLLM's names and meaning. \`VLLM_EXTRA_FIELDS\` names further ones. Without it ${OPERATORS_FIELDS.map((field) => `\`${field}\``).join(", ")} are a 400, and others are unknown fields.`,
    table(head, rows(true)),
    `## Fields that are refused\n\nEach is a 400 \`unsupported_parameter\`.\n\n${table(["Field", "Error"], refusedFields(requestFields, described))}`,
  );
}

/**
 * Imports a module of the Worker, which runs on workerd. The functions that are used here need none of workerd's own
 * modules.
 */
async function importWorkerModule<Module>(path: string): Promise<Module> {
  const source =
    "export class DurableObject {} export class WorkerEntrypoint {} export const connect = 0, waitUntil = 0, env = {};";
  const hooks = registerHooks({
    resolve: (name, context, next) =>
      name.startsWith("cloudflare:") ? { url: name, shortCircuit: true } : next(name, context),
    load: (url, context, next) => {
      if (url.startsWith("cloudflare:")) return { format: "module", source, shortCircuit: true };
      // Files that the bundler turns into texts.
      const isText = /\?raw$|\.(tiktoken|bin|gz)$|\.wasm$|\.html$|\.css$|\.svg$/.test(url);
      return isText ? { format: "module", source: "export default ''", shortCircuit: true } : next(url, context);
    },
  });
  const module = (await import(join(root, path))) as Module;
  hooks.deregister();
  return module;
}

const { endpoints } = await importWorkerModule<{ endpoints: DeclaredEndpoint[] }>("src/http/endpoints.ts");
const { GROUPS } = await importWorkerModule<{ GROUPS: Record<string, string> }>("src/http/openapi/operation.ts");
const { componentSchemas } = await importWorkerModule<{ componentSchemas(): Record<string, JsonSchema> }>(
  "src/http/openapi/components.ts",
);
const schemas = componentSchemas();

/** A page with its table written again, between two marks. */
function withTable(text: string, rows: string): string {
  return text.replace(/(?<=<!-- `npm run reference`[^>]*-->\n\n)[\s\S]*?(?=\n\n<!-- end -->)/, () => rows);
}

function current(path: string): string {
  const file = join(root, path);
  return existsSync(file) ? readFileSync(file, "utf8") : "";
}

/** By their paths. */
const pages = {
  "docs/reference/configuration.md": configurationPage(),
  "docs/reference/endpoints.md": endpointsPage(endpoints, GROUPS),
  "docs/reference/config.schema.json": `${JSON.stringify(configSchema(), null, 2)}\n`,
  "docs/reference/fields.md": fieldsPage(schemas.RequestFields ?? {}),
  "docs/model-servers.md": withTable(current("docs/model-servers.md"), table(...modelServerTable())),
  "packages/console/api-types.d.ts": await apiTypes(schemas),
};

if (process.argv.includes("--check")) {
  const stale = Object.entries(pages).filter(([path, text]) => current(path) !== text);
  for (const [path] of stale) console.error(`${path} is not what its declarations say: npm run reference`);
  process.exitCode = stale.length > 0 ? 1 : 0;
} else {
  for (const [path, text] of Object.entries(pages)) {
    mkdirSync(join(root, dirname(path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
}
