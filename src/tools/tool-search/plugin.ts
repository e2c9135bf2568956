import type { Item } from "@responses-edge/responses-api/items/registry";
import { foundTools } from "@responses-edge/responses-api/items/tool-search";
import { isJsonObject, parseArguments } from "@responses-edge/responses-api/json";
import { type ClientTool, ClientTools, isDeferred } from "@responses-edge/responses-api/tool-names";
import type { NamespaceTool, Tool } from "@responses-edge/responses-api/tools";
import { stepOf } from "@responses-edge/turn/contract/plugin";
import type { CalledTool, ToolOutcome } from "@responses-edge/turn/contract/tool-session";
import type { ResponseToolSearchCall, Tool as WireTool } from "openai/resources/responses/responses";
import { type PluginSession, type RunnablePlugin, refuseArguments } from "../plugin.ts";

/**
 * `tool_search` that this server executes: it finds deferred tools of the request (`defer_loading`), which the model
 * can call from the next round on.
 */

interface ToolSearch extends CalledTool {
  readonly kind: "tool_search";
}

const TOOL: ToolSearch = { kind: "tool_search" };
const NAME = "tool_search";
const TOOLS = new Map([[NAME, TOOL]]);

/** Most tools that one search finds, as at OpenAI. */
const MAX_FOUND = 8;

const MAX_QUERY_LENGTH = 1_000;

interface SearchOutcome extends ToolOutcome {
  tools?: Tool[];
}

type SearchCall = Extract<Item, { type: "tool_search_call" }>;
type SearchOutput = Extract<Item, { type: "tool_search_output" }>;

export const TOOL_SEARCH: RunnablePlugin<ToolSearch, ResponseToolSearchCall> = {
  kind: "tool_search",
  tools: TOOLS,
  fullName: () => NAME,
  item: {
    type: "tool_search_call",
    // The arguments show the query.
    canShow: (_tool, _text, isComplete) => isComplete,
    create: (_tool, { id, text }) => ({
      id,
      type: "tool_search_call",
      call_id: null,
      execution: "server",
      arguments: parseArguments(text) ?? {},
      status: "in_progress",
    }),
    finish: () => undefined,
    *results({ tools = [] }: SearchOutcome, _item, newId) {
      yield {
        id: newId("tool_search_output"),
        type: "tool_search_output",
        call_id: null,
        execution: "server",
        status: "completed",
        tools: tools as WireTool[],
      };
    },
  },
  exchanges: {
    tool_search_call(item, items) {
      if (item.execution !== "server") return undefined;
      const found = outputsIn(items).get(item);
      const json = JSON.stringify(item.arguments);
      return found && { name: NAME, arguments: json, output: foundTools(found.tools), step: stepOf(item) };
    },
  },
  session({ request }): PluginSession {
    const deferred = ClientTools.of(request.tools).listed.filter(({ tool }) => isDeferred(tool as Tool));
    const own = request.tools?.find(({ type }) => type === "tool_search");
    const description = own?.type === "tool_search" ? own.description : undefined;
    const ranking = new Ranking(deferred.map((value) => ({ value, text: textOf(value) })));
    const about = description ?? `Searches for more tools, by words. ${whatThereIs(deferred)}`;
    return {
      offered: { functions: [{ name: NAME, description: about, parameters: PARAMETERS }] },
      tools: TOOLS,
      async run({ arguments: json }): Promise<SearchOutcome> {
        const args = parseArguments(json);
        refuseArguments(args, PARAMETERS);
        const { query, limit } = args ?? {};
        if (typeof query !== "string" || query.trim() === "") {
          return { output: "Error: expected a JSON object with a 'query'.", failed: true };
        }
        const count = typeof limit === "number" && limit >= 1 ? Math.min(Math.trunc(limit), MAX_FOUND) : MAX_FOUND;
        const tools = inNamespaces(ranking.search(query.slice(0, MAX_QUERY_LENGTH), count));
        return { output: foundTools(tools), failed: false, tools };
      },
    };
  },
};

const PARAMETERS = {
  type: "object",
  properties: {
    query: { type: "string", description: "Words that say what the tools are to do." },
    limit: { type: "integer", description: `How many tools to find at most, up to ${MAX_FOUND}.` },
  },
  required: ["query"],
  additionalProperties: false,
};

/** Tells a model which tools it does not see. */
function whatThereIs(deferred: readonly ClientTool[]): string {
  const namespaces = new Map<string, string>();
  for (const { namespace, namespaceDescription } of deferred) {
    if (namespace !== undefined) namespaces.set(namespace, namespaceDescription ?? "");
  }
  if (namespaces.size === 0) return `There are ${deferred.length} of them.`;
  const lines = [...namespaces].map(([name, about]) => `- ${name}: ${about}`);
  return `There are ${deferred.length} of them, some of these kinds:\n${lines.join("\n")}`;
}

/** The text by which a tool is found: its names, its description, and its parameters. */
function textOf({ name, namespace, namespaceDescription, tool }: ClientTool): string {
  const about = "description" in tool ? (tool.description ?? "") : "";
  const properties = "parameters" in tool && isJsonObject(tool.parameters) ? tool.parameters.properties : undefined;
  const parameters = isJsonObject(properties)
    ? Object.entries(properties).map(([key, schema]) => {
        const described = isJsonObject(schema) ? schema.description : undefined;
        return typeof described === "string" ? `${key} ${described}` : key;
      })
    : [];
  return [name, namespace, about, ...parameters, namespaceDescription].filter(Boolean).join("\n");
}

/** The found tools, grouped by namespace. */
function inNamespaces(found: readonly ClientTool[]): Tool[] {
  const tools: Tool[] = [];
  const places = new Map<string, NamespaceTool>();
  for (const { tool, namespace, namespaceDescription } of found) {
    if (namespace === undefined) {
      tools.push(tool);
      continue;
    }
    let place = places.get(namespace);
    if (!place) {
      place = { type: "namespace", name: namespace, description: namespaceDescription ?? "", tools: [] };
      places.set(namespace, place);
      tools.push(place);
    }
    place.tools.push(tool as NamespaceTool["tools"][number]);
  }
  return tools;
}

const outputs = new WeakMap<readonly Item[], Map<SearchCall, SearchOutput>>();

/** The results of each search of this server, read from its items: the next output belongs to the oldest search. */
function outputsIn(items: readonly Item[]): Map<SearchCall, SearchOutput> {
  let known = outputs.get(items);
  if (known) return known;
  known = new Map();
  const calls: SearchCall[] = [];
  let next = 0;
  for (const item of items) {
    if (item.type === "tool_search_call" && item.execution === "server") calls.push(item);
    const call = item.type === "tool_search_output" && item.execution === "server" ? calls[next] : undefined;
    if (call && item.type === "tool_search_output") {
      known.set(call, item);
      next += 1;
    }
  }
  outputs.set(items, known);
  return known;
}

/** Finds texts by words: Okapi BM25, as OpenAI's own search for tools. */

/** BM25's parameters: how soon repetitions of a word stop counting, and how much the length of a text counts. */
const SATURATION = 1.2;
const LENGTH_WEIGHT = 0.75;

/** UTF-16 units of a text that are searched: its beginning says what it is about. */
const MAX_TEXT_LENGTH = 4_000;

interface Entry<Value> {
  value: Value;
  counts: ReadonlyMap<string, number>;
  length: number;
}

export class Ranking<Value> {
  readonly #entries: Entry<Value>[];
  readonly #meanLength: number;
  /** The number of texts that contain a word. */
  readonly #spread = new Map<string, number>();

  constructor(entries: readonly { value: Value; text: string }[]) {
    this.#entries = entries.map(({ value, text }) => {
      const words = wordsOf(text);
      const counts = new Map<string, number>();
      for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
      for (const word of counts.keys()) this.#spread.set(word, (this.#spread.get(word) ?? 0) + 1);
      return { value, counts, length: words.length };
    });
    const total = this.#entries.reduce((sum, { length }) => sum + length, 0);
    this.#meanLength = Math.max(1, total / Math.max(1, this.#entries.length));
  }

  /** At most `limit` values whose texts have words of the query, best first. */
  search(query: string, limit: number): Value[] {
    const words = [...new Set(wordsOf(query))];
    return this.#entries
      .map((entry) => ({ value: entry.value, score: this.#score(entry, words) }))
      .filter(({ score }) => score > 0)
      .sort((a, b) => b.score - a.score)
      .slice(0, limit)
      .map(({ value }) => value);
  }

  #score({ counts, length }: Entry<Value>, words: readonly string[]): number {
    const norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * (length / this.#meanLength));
    let score = 0;
    for (const word of words) {
      const count = counts.get(word);
      if (count === undefined) continue;
      const spread = this.#spread.get(word) ?? 0;
      const rarity = Math.log(1 + (this.#entries.length - spread + 0.5) / (spread + 0.5));
      score += (rarity * count * (SATURATION + 1)) / (count + norm);
    }
    return score;
  }
}

/** The words of a text. Compound names (`listEvents`, `list_events`) are split. */
function wordsOf(text: string): string[] {
  const apart = text.slice(0, MAX_TEXT_LENGTH).replaceAll(/(\p{Ll})(\p{Lu})/gu, "$1 $2");
  return apart.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}
