import { dohResolver, hostsOf } from "@responses-edge/outgoing-fetch/guarded";
import {
  BUILTIN_LABELS,
  type BuiltinKind,
  HOSTED_TOOL_NAMES,
  hostedKinds,
} from "@responses-edge/responses-api/hosted-tools";
import { MEMORY_LIMITS } from "@responses-edge/responses-api/platform/containers";
import { z } from "zod";
import type { imageConfig } from "./images.ts";
import type { OperatorNetwork } from "./network.ts";
import {
  headerSecret,
  httpUrl,
  integer,
  jsonMap,
  listed,
  listText,
  milliseconds,
  setOf,
  someOf,
  urlPrefixes,
} from "./values.ts";
import { type Section, type ValuesOf, variable } from "./variable.ts";

/** The tools that this server runs for a model, and their limits. */

const BUILTIN_KINDS: readonly string[] = [...new Set(BUILTIN_LABELS.values())];

const toolServers = jsonMap(httpUrl, '{"python":"https://tools.example.com/python/mcp"}')
  .refine(
    (given) => Object.keys(given).every((name) => BUILTIN_KINDS.includes(name)),
    `expected the names ${BUILTIN_KINDS.join(", ")}`,
  )
  .transform((given): Partial<Record<BuiltinKind, string>> => given);

const header = z.string().regex(/^[\t\x20-\x7e]*$/, "expected visible ASCII characters: it is sent in a header");

/** An MCP server of the operator. */
const connector = z.strictObject({
  url: httpUrl,
  headers: z.record(z.string().regex(/^[\w-]{1,64}$/, "expected the name of a header"), header).optional(),
  oauth: z
    .strictObject({
      token_url: httpUrl,
      client_id: z.string().min(1),
      client_secret: z.string().min(1),
      scope: z.string().optional(),
    })
    .optional(),
});
export type Connector = z.output<typeof connector>;

const builtinLabels = listText()
  .transform((text, context): ReadonlyMap<string, BuiltinKind> => {
    const labels = listed(text).map((label) => [label, BUILTIN_LABELS.get(label)] as const);
    const known = labels.filter((entry): entry is [string, BuiltinKind] => entry[1] !== undefined);
    if (known.length === labels.length) return new Map(known);
    const message = "expected labels such as code_interpreter, web_search or container";
    context.addIssue({ code: "custom", message });
    return z.NEVER;
  })
  .default(new Map());

export const tools = {
  title: "Tools",
  variables: {
    servers: variable(
      "TOOL_SERVERS",
      toolServers,
      'JSON: MCP URLs of your tool servers, such as `{"python":"https://…/mcp","container":"…","browser":"…"}`.',
    ),
    /** The key also derives the names of sessions. */
    apiKey: variable(
      "TOOL_SERVER_API_KEY",
      headerSecret.optional(),
      "Secret. Tool servers receive it as `Authorization: Bearer`, and it makes the names of their sessions unguessable. `TOOL_SERVER=1 npm start` makes one.",
    ),
    memoryLimits: variable(
      "CONTAINER_MEMORY_LIMITS",
      listText()
        .transform((text) => listed(text))
        .pipe(z.array(z.enum(MEMORY_LIMITS)))
        .default([]),
      "The `memory_limit`s of containers that your tool server holds, such as `1g,4g`; others are a 400. See [tools.md](../tools.md#code).",
    ),
    /** As vLLM's `VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS`. */
    builtinLabels: variable(
      "TOOL_SERVER_MCP_LABELS",
      builtinLabels,
      "Labels of `mcp` tools that mean a tool of `TOOL_SERVERS`, such as `code_interpreter,web_search_preview,container`.",
    ),
    isListed: variable(
      "MCP_SERVERS",
      urlPrefixes(),
      "URL prefixes that `mcp` tools and the browser may call, besides public https addresses.",
    ),
    /** By name. */
    connectors: variable(
      "MCP_CONNECTORS",
      jsonMap(connector, '{"docs":{"url":"https://…/mcp","headers":{"authorization":"Bearer …"}}}'),
      'Secret. JSON: MCP servers that requests name by `server_label` or `connector_id` alone, with the credentials that this server keeps: `{"docs":{"url":"https://…/mcp","headers":{"authorization":"Bearer …"}}}`, or `"oauth":{"token_url":"…","client_id":"…","client_secret":"…","scope":"…"}` ([tools.md](../tools.md#servers-of-the-operator)).',
    ),
    /** The `kind`s of hosted tools that are offered. A request's tool of another kind is ignored. */
    offeredKinds: variable(
      "HOSTED_TOOLS",
      someOf(HOSTED_TOOL_NAMES)
        .default(["all"])
        .transform((names) => hostedKinds([...setOf(HOSTED_TOOL_NAMES)(names)])),
      `The tools that this server runs: \`all\`, \`none\`, or some of \`${HOSTED_TOOL_NAMES.join(",")}\`. A response echoes the others, and no model sees them. A \`tool_choice\` that forces one of them is a 400.`,
    ),
    dropsUnknownTools: variable(
      "UNKNOWN_TOOLS",
      z
        .enum(["refuse", "drop"])
        .default("refuse")
        .transform((value) => value === "drop"),
      "The treatment of a tool of an unknown type. `refuse` answers 400. `drop` leaves it out and names it in the header `x-dropped-tools`.",
    ),
    runsPrograms: variable(
      "PROGRAMS",
      z
        .enum(["run", "refuse"])
        .default("run")
        .transform((value) => value === "run"),
      "The treatment of the tool `programmatic_tool_calling`. `run` runs the programs that models write, where the deployment can ([programs.md](../programs.md)). `refuse` answers 400.",
    ),
    searxngUrl: variable("SEARXNG_URL", httpUrl.optional(), "A SearXNG with which the built-in browser searches."),
    braveApiKey: variable(
      "BRAVE_API_KEY",
      headerSecret.optional(),
      "Secret. A key for Brave Search, with which the built-in browser searches.",
    ),
    dohUrl: variable(
      "DNS_OVER_HTTPS_URL",
      httpUrl.optional(),
      "A DNS server such as `https://cloudflare-dns.com/dns-query`. Host names in clients' URLs are looked up there, and refused where an address is private.",
    ),
    callTimeoutMs: variable("TOOL_CALL_TIMEOUT_MS", milliseconds(60_000, 1), "The longest time of one tool call."),
    outputBytes: variable(
      "TOOL_OUTPUT_BYTES",
      integer(100_000, 1_000),
      "The largest output of one tool call, in bytes. All calls of a turn may return ten times as much.",
    ),
    maxRounds: variable(
      "MAX_TOOL_ROUNDS",
      integer(32, 1),
      "How many times a turn may go back to the model with results of tools.",
    ),
    turnTimeMs: variable("TOOL_TIME_MS", milliseconds(600_000, 1), "The longest time of all tool calls of a turn."),
  },
} satisfies Section;

/** The settings of tools. `fetch` reaches the operator's addresses: tool servers, search servers and listed URLs. */
export function toolConfig(
  { dropsUnknownTools: _, ...values }: ValuesOf<typeof tools>,
  { fetch }: OperatorNetwork,
  images: ReturnType<typeof imageConfig>,
) {
  const { isListed, dohUrl, servers } = values;
  /**
   * The addresses that a request may have called: public https ones (looked up if DNS is configured) and listed ones, but never the
   * operator's tool servers, where a header that callers set identifies each session; not by a redirect either.
   */
  const guard = {
    allow: isListed,
    fetchListed: fetch,
    allowPublic: true,
    ...(Object.keys(servers).length > 0 && { deny: hostsOf(Object.values(servers)) }),
    ...(dohUrl !== undefined && { resolve: dohResolver(dohUrl, fetch) }),
  };
  return {
    ...values,
    fetch,
    guard,
    /** The same for MCP servers. `limit`: a key's own, if it may not call every server. */
    mcpGuard: guard as typeof guard & { limit?: (url: URL) => boolean },
    /** Undefined without an image model. */
    images,
    /** Types of tools that this deployment does not have. */
    absent: [...(images ? [] : ["image_generation"]), ...(values.runsPrograms ? [] : ["programmatic_tool_calling"])],
  };
}
export type ToolConfig = ReturnType<typeof toolConfig>;
