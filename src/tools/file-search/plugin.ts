import { ToolFault } from "@responses-edge/hosted-tools/mcp-client";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { FileSearchTool } from "@responses-edge/responses-api/hosted-tools";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { FoundChunk } from "@responses-edge/responses-api/platform/vector-stores";
import type { Tool } from "@responses-edge/responses-api/tools";
import type { Replay, ToolDescription, ToolExchange } from "@responses-edge/turn/contract/engine";
import { stepOf } from "@responses-edge/turn/contract/plugin";
import type { CalledTool, ToolOutcome } from "@responses-edge/turn/contract/tool-session";
import type { ResponseFileSearchToolCall } from "openai/resources/responses/responses";
import { type PluginSession, type RunnablePlugin, refuseArguments, type SessionOptions, timeLeft } from "../plugin.ts";
import { type Source, shownResults, sourcesIn } from "./results.ts";

/** `file_search`: the model searches the tenant's vector stores, and cites the results. */

interface FileSearch extends CalledTool {
  readonly kind: "file_search";
}

const TOOL: FileSearch = { kind: "file_search" };
const NAME = "file_search";
const TOOLS = new Map([[NAME, TOOL]]);

/** Most queries of one call, and most UTF-16 units of each. Further ones are cut off. */
const MAX_QUERIES = 8;
const MAX_QUERY_LENGTH = 2_000;

interface SearchOutcome extends ToolOutcome {
  results?: ResponseFileSearchToolCall.Result[];
}

type SearchItem = Extract<Item, { type: "file_search_call" }>;

const FUNCTION: ToolDescription = {
  name: NAME,
  description: [
    "Searches the user's files. Each result begins with its mark, such as 【0:1†source】, and the name of its file.",
    "Ask several short queries at once, with the words that the files may have. Behind each statement that rests on a",
    "result, write the mark of that result, exactly as it stands there.",
  ].join(" "),
  parameters: {
    type: "object",
    properties: {
      queries: {
        type: "array",
        items: { type: "string" },
        minItems: 1,
        maxItems: MAX_QUERIES,
        description: "What to search for: questions or words.",
      },
    },
    required: ["queries"],
    additionalProperties: false,
  },
};

export const FILE_SEARCH: RunnablePlugin<FileSearch, ResponseFileSearchToolCall> = {
  kind: "file_search",
  isRepeatable: true,
  functions: [FUNCTION],
  tools: TOOLS,
  fullName: () => NAME,
  item: {
    type: "file_search_call",
    // The item shows the queries, which are in the arguments.
    canShow: (_tool, _text, isComplete) => isComplete,
    create: (_tool, { id, text }) => ({
      id,
      type: "file_search_call",
      status: "in_progress",
      queries: queriesOf(text),
      results: null,
    }),
    start(item) {
      item.status = "searching";
      return "response.file_search_call.searching";
    },
    finish(item, { results }: SearchOutcome, include) {
      if (results && include.includes("file_search_call.results")) item.results = results;
      return "response.file_search_call.completed";
    },
    toolOf: () => TOOL,
  },
  exchanges: { file_search_call: toldOf },
  session: (turn) => new FileSearchSession(turn),
};

class FileSearchSession implements PluginSession {
  readonly offered = { functions: [FUNCTION] };
  readonly tools = TOOLS;
  readonly #turn: SessionOptions;
  readonly #tool: FileSearchTool | undefined;
  /** The number of the next call, by which its results are cited. It stays the same if the turn begins again. */
  #next: number;
  /** The citable sources, by their marks. */
  #sources: Map<string, Source> | undefined;

  constructor(turn: SessionOptions) {
    this.#turn = turn;
    this.#tool = turn.request.tools?.find(isFileSearch);
    const begun = turn.output.filter(({ type }) => type === "file_search_call").length;
    this.#next = callsIn(turn.items).length + begun;
  }

  async run({ arguments: json }: { arguments: string }, signal: AbortSignal): Promise<SearchOutcome> {
    const { searchStores, deadline, config } = this.#turn;
    refuseOthers(json);
    const queries = queriesOf(json);
    if (queries.length === 0) return { output: "Error: expected a JSON object with 'queries'.", failed: true };
    if (!this.#tool || !searchStores) throw new ToolFault("unreachable", "There are no files to search.");
    const number = this.#next++;
    const { vector_store_ids: stores, filters, max_num_results, ranking_options } = this.#tool;
    const timeout = AbortSignal.timeout(timeLeft(deadline, config.callTimeoutMs));
    const request = { queries, filters, max_num_results, ranking_options };
    const found = await searchStores(stores, request, AbortSignal.any([signal, timeout])).catch((error: unknown) => {
      if (timeout.aborted && !signal.aborted) throw new ToolFault("timeout", "The search did not end in time.");
      if (error instanceof ApiError) throw new ToolFault("tool", error.message);
      throw error;
    });
    const output = shownResults(number, found);
    for (const [mark, source] of sourcesIn(output)) this.#known.set(mark, source);
    return { output, failed: false, results: found.map(toResult) };
  }

  cite = (mark: string, part: string) => {
    const source = part === "source" ? this.#known.get(mark) : undefined;
    if (!source) return undefined;
    return {
      text: "",
      annotation: ({ units: index }: { units: number }) => ({ type: "file_citation" as const, index, ...source }),
    };
  };

  /** The sources found by this turn and the earlier ones. */
  get #known(): Map<string, Source> {
    this.#sources ??= new Map(
      exchangesIn(this.#turn.items, this.#turn.replays).flatMap(({ output }) => [...sourcesIn(output)]),
    );
    return this.#sources;
  }
}

/** The searches that items show, and those of the turn that no item of the prompt shows yet. */
function exchangesIn(items: readonly Item[], replays: readonly Replay[]): ToolExchange[] {
  const kept = new Map(replays.map(({ item, exchange }) => [item, exchange]));
  const given = callsIn(items).flatMap((item) =>
    item.id !== undefined && kept.get(item.id) ? [] : (toldOf(item, items) ?? []),
  );
  return [...given, ...replays.flatMap(({ exchange }) => (exchange?.name === NAME ? [exchange] : []))];
}

/** The text for the model of a search whose results the client sends back. */
function toldOf(item: SearchItem, items: readonly Item[]): ToolExchange | undefined {
  if (!item.results?.length) return undefined;
  const results = item.results.map(({ file_id: fileId, filename, text }) => {
    return { fileId, filename, text, page: null, lastPage: null };
  });
  const output = shownResults(callsIn(items).indexOf(item), results);
  return { name: NAME, arguments: JSON.stringify({ queries: item.queries }), output, step: stepOf(item) };
}

function callsIn(items: readonly Item[]): SearchItem[] {
  return items.filter((item) => item.type === "file_search_call");
}

function isFileSearch(tool: Tool): tool is FileSearchTool {
  return tool.type === "file_search";
}

/** The list of a call's queries, as the model has written it: a single one may be without a list. */
function listOf({ queries, query }: Record<string, unknown>): unknown[] {
  return Array.isArray(queries) ? queries : [queries ?? query];
}

/** The queries of a call. */
function queriesOf(json: string): string[] {
  const texts = listOf(parseArguments(json) ?? {}).filter(
    (each): each is string => typeof each === "string" && each.trim() !== "",
  );
  return texts.slice(0, MAX_QUERIES).map((text) => text.slice(0, MAX_QUERY_LENGTH));
}

/** Throws the fault of arguments that are not those of the function. */
function refuseOthers(json: string): void {
  const args = parseArguments(json);
  if (!args || (args.queries === undefined && args.query === undefined)) return;
  const { query: _, ...others } = args;
  refuseArguments({ ...others, queries: listOf(args).slice(0, MAX_QUERIES) }, FUNCTION.parameters);
}

function toResult({ fileId, filename, score, text, attributes }: FoundChunk): ResponseFileSearchToolCall.Result {
  return { file_id: fileId, filename, score, text, attributes: { ...attributes } };
}
