import { list, map } from "@responses-edge/bounded-io/schemas/collections";
import { canonicalHost } from "@responses-edge/outgoing-fetch/guarded";
import { z } from "zod";
import { MAX_ID_LENGTH } from "./ids.ts";
import { imageGenerationTool } from "./image-tool.ts";
import { givenFileIds, MEMORY_LIMITS } from "./platform/containers.ts";
import { searchSettings } from "./search-settings.ts";
import {
  allowedCallers,
  FUNCTION_NAME,
  jsonObject,
  MAX_LABEL_LENGTH,
  MAX_TOOLS,
  mcpToolName,
  refuse,
} from "./tool-fields.ts";

/** The hosted tools, which this server runs, in requests and in the configuration. */

/** Some of a server's tools: by name, or the read-only ones. */
const toolFilter = z.object({
  tool_names: list(mcpToolName, { max: MAX_TOOLS }).optional(),
  read_only: z.boolean().optional(),
});

/** `null` is the default, which is OpenAI's: every call needs approval. */
const approvalFilter = z.object({ always: toolFilter.optional(), never: toolFilter.optional() });

const mcpServerTool = z
  .object({
    type: z.literal("mcp"),
    server_label: z.string().max(MAX_LABEL_LENGTH, { abort: true }).regex(FUNCTION_NAME),
    server_url: z.string().min(1).max(4096).nullish(),
    connector_id: z.string().min(1).max(256).nullish(),
    tunnel_id: z.string().nullish(),
    server_description: z.string().max(10_000).nullish(),
    authorization: z.string().max(16_384).nullish(),
    headers: map(z.string().max(256), z.string().max(16_384), { max: 100 }).nullish(),
    allowed_tools: z.union([list(mcpToolName, { max: MAX_TOOLS }), toolFilter]).nullish(),
    require_approval: z.union([z.enum(["always", "never"]), approvalFilter]).nullish(),
    defer_loading: z.boolean().nullish(),
    allowed_callers: allowedCallers,
  })
  .transform((tool, context) => {
    if (tool.tunnel_id != null) {
      const message = "'tunnel_id' is not supported by this server: name the MCP server by 'server_url'.";
      refuse(context, ["tunnel_id"], message);
    }
    if (tool.connector_id != null && tool.server_url != null) {
      refuse(context, ["connector_id"], "'connector_id' and 'server_url' both name the MCP server: send one of them.");
    }
    if (tool.defer_loading) {
      const message =
        "'defer_loading' of an MCP server is not supported by this server. Name the tools to offer in 'allowed_tools'.";
      refuse(context, ["defer_loading"], message);
    }
    return {
      type: tool.type,
      server_label: tool.server_label,
      ...(tool.server_url != null && { server_url: tool.server_url }),
      ...(tool.connector_id != null && { connector_id: tool.connector_id }),
      ...(tool.server_description != null && { server_description: tool.server_description }),
      ...(tool.authorization != null && { authorization: tool.authorization }),
      ...(tool.headers != null && { headers: tool.headers }),
      ...(tool.allowed_tools != null && { allowed_tools: tool.allowed_tools }),
      require_approval: tool.require_approval ?? ("always" as const),
      ...(tool.defer_loading != null && { defer_loading: tool.defer_loading }),
      ...(tool.allowed_callers != null && { allowed_callers: tool.allowed_callers }),
    };
  });

/**
 * The host of a domain in a filter, as {@link canonicalHost} writes it, and whether `*.` stands before it. No host where
 * there is none, or where a `*` stands elsewhere.
 */
export function parseDomain(pattern: string): { host: string | undefined; isWildcard: boolean } {
  const isWildcard = pattern.startsWith("*.");
  const name = isWildcard ? pattern.slice(2) : pattern;
  return { host: /[*:]/.test(name) ? undefined : canonicalHost(name), isWildcard };
}

/** Hosts, whose subdomains are meant, too; `*.example.com` means these only. */
const domains = list(
  z
    .string()
    .max(256, { abort: true })
    .refine(
      (domain) => parseDomain(domain).host !== undefined,
      "Expected a domain such as 'example.com' or '*.example.com', without a scheme, a port or a path.",
    ),
  { max: 100 },
).nullish();

const webSearchTool = z.object({
  type: z.enum(["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]),
  filters: z.object({ allowed_domains: domains, blocked_domains: domains }).nullish(),
  // Hints that no search provider here knows: echoed.
  search_context_size: z.enum(["low", "medium", "high"]).nullish(),
  user_location: z.looseObject({ type: z.literal("approximate").optional() }).nullish(),
  search_content_types: list(z.string().max(64), { max: 16 }).nullish(),
  image_settings: jsonObject.nullish(),
  /** False: no page is fetched, and only the search provider is asked. */
  external_web_access: z.boolean().nullish(),
  allowed_callers: allowedCallers,
});

/** The operator configures containers: of a request's settings, the tool server gets the memory, where it can hold it. */
const automaticContainer = z
  .object({
    type: z.literal("auto"),
    file_ids: givenFileIds().nullish(),
    memory_limit: z.enum(MEMORY_LIMITS).nullish(),
    network_policy: z.unknown().optional(),
  })
  .transform(({ type, file_ids, memory_limit, network_policy }, context) => {
    if (network_policy != null) {
      const message = "'network_policy' is not supported by this server: its operator sets what a container may.";
      refuse(context, ["network_policy"], message);
    }
    return { type, ...(file_ids?.length && { file_ids }), ...(memory_limit != null && { memory_limit }) };
  });

const codeInterpreterTool = z
  .object({
    type: z.literal("code_interpreter"),
    container: z.union([z.string().min(1).max(256), automaticContainer]).default({ type: "auto" as const }),
    allowed_callers: allowedCallers,
  })
  .transform(({ type, container, allowed_callers }) => ({
    type,
    container,
    ...(allowed_callers != null && { allowed_callers }),
  }));

/** The vector stores that one tool searches. */
const MAX_STORES = 16;

const fileSearchTool = z.object({
  type: z.literal("file_search"),
  vector_store_ids: list(z.string().min(1).max(MAX_ID_LENGTH), { min: 1, max: MAX_STORES }),
  ...searchSettings,
  allowed_callers: allowedCallers,
});

/** vLLM's: a shell, on the operator's tool server. */
const containerTool = z.object({ type: z.literal("container") });

/** A hosted tool as the layers below `src/tools/` know it. */
interface HostedRequest {
  /** The schemas of its tools in requests, in normal form. The first type is its name. */
  readonly schema: z.core.$ZodTypeDiscriminable;
  /** Tells whether items cannot bring it, because items are stored, and credentials are not. */
  readonly isOfRequestOnly?: true;
  /** Tells whether it takes the images of a prompt, which may then have some even where its model sees none. */
  readonly takesImages?: true;
  /** vLLM's labels for a tool that the operator's server may run (`VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS`). */
  readonly labels?: readonly string[];
}

/**
 * By their `kind`s (docs/tools.md, "Adding a hosted tool"). Every other list of hosted tools is derived from this one.
 */
const HOSTED = {
  mcp: { schema: mcpServerTool, isOfRequestOnly: true },
  browser: { schema: webSearchTool, labels: ["web_search_preview", "web_search", "browser"] },
  python: { schema: codeInterpreterTool, labels: ["code_interpreter", "python"] },
  file_search: { schema: fileSearchTool },
  image_generation: { schema: imageGenerationTool, takesImages: true },
  container: { schema: containerTool, labels: ["container"], isOfRequestOnly: true },
} as const satisfies Record<string, HostedRequest>;

type Kind = keyof typeof HOSTED;
/** The kinds of hosted tools. A tool search is one if this server searches; `multi_agent` is a field of the request. */
export type HostedKind = Kind | "tool_search" | "multi_agent";
/** The kinds that the operator's server may run. */
export type BuiltinKind = { [K in Kind]: (typeof HOSTED)[K] extends { labels: unknown } ? K : never }[Kind];
/** The types of their tools in requests. */
export type HostedType = z.output<(typeof HOSTED)[Kind]["schema"]>["type"];

export type McpServerTool = z.output<typeof mcpServerTool>;
export type FileSearchTool = z.output<typeof fileSearchTool>;
export type WebSearchTool = z.output<typeof webSearchTool>;
export type ToolFilter = z.output<typeof toolFilter>;

/** The types of tools that a schema accepts. */
export function typesOf(schema: z.core.$ZodTypeDiscriminable): string[] {
  return [...(schema._zod.propValues.type ?? [])].map(String);
}

export const HOSTED_SCHEMAS = Object.values(HOSTED).map(({ schema }) => schema);

const ALL = Object.entries<HostedRequest>(HOSTED).map(([kind, request]) => {
  const types = typesOf(request.schema) as [HostedType, ...HostedType[]];
  return { ...request, kind: kind as Kind, types, name: types[0] };
});
const BY_TYPE = new Map(ALL.flatMap((hosted) => hosted.types.map((type) => [type as string, hosted] as const)));

/** The hosted tool of a type of a request's tools. */
export function hostedOf(type: string): (typeof ALL)[number] | undefined {
  return BY_TYPE.get(type);
}

/** Tells whether one of a request's tools takes the images of its prompt. */
export function takeImages(tools: readonly { type: string }[] | null | undefined): boolean {
  return tools?.some(({ type }) => hostedOf(type)?.takesImages) === true;
}

/** Tells whether a tool of a request, or of a choice, is a hosted one. A tool search does not count as one. */
export function isHosted<Tool extends { type: string }>(tool: Tool): tool is Extract<Tool, { type: HostedType }> {
  return BY_TYPE.has(tool.type);
}

/** The names of those that a request names in `tools`. */
export const HOSTED_TYPES = ALL.map(({ name }) => name) as [HostedType, ...HostedType[]];

/** All names, for operators: in `HOSTED_TOOLS`, and in the limits of keys. */
export const HOSTED_TOOL_NAMES = [...HOSTED_TYPES, "multi_agent"] as const;

/** The kinds of the named tools. A tool search costs nothing and calls no server, so it is always among them. */
export function hostedKinds(names: readonly string[]): ReadonlySet<string> {
  const own = names.filter((name) => name === "multi_agent");
  return new Set(["tool_search", ...own, ...ALL.flatMap(({ kind, name }) => (names.includes(name) ? kind : []))]);
}

/** The kinds that the operator's server may run, by vLLM's labels. */
export const BUILTIN_LABELS: ReadonlyMap<string, BuiltinKind> = new Map(
  ALL.flatMap(({ kind, labels = [] }) => labels.map((label) => [label, kind as BuiltinKind] as const)),
);
