import { type ErrorFields, invalidRequest } from "@responses-edge/responses-api/errors";
import { responseId, type TreeAddress } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { inputPreview, outputPreview, readPrefix } from "@responses-edge/responses-api/platform/previews";
import type { TreeNode } from "@responses-edge/responses-api/platform/tree";
import type { ResponseObject } from "@responses-edge/responses-api/response";
import { waiting } from "../objects/ownership.ts";
import { MAX_PAGE_LENGTH, type Result, refused } from "../objects/rpc.ts";
import type { HomeRows } from "./home-rows.ts";
import { type ItemPage, type PageRequest, pageOf, unknownCursor } from "./item-store.ts";
import type { RunHost } from "./run-host.ts";
import { type RunSpec, runningBody } from "./run-store.ts";
import type { StoredResponse } from "./stored-response.ts";
import type { NodeRow } from "./turn-store.ts";

/** A live run, as the operator sees it. */
export interface LiveRunFacts {
  model: string;
  /** Unix milliseconds. */
  createdAt: number;
  /** False for a turn under an `Idempotency-Key`. */
  isBackground: boolean;
  /** The name of the model server that has answered last; null if none has. */
  server: string | null;
  /** Events so far: about one for each token. */
  events: number;
}

/** Responses as a client sees them, settled or running. Reading one resumes the home's runs whose process died. */
export class ResponseReader {
  readonly #rows: HomeRows;
  readonly #runs: RunHost;

  constructor(rows: HomeRows, runs: RunHost) {
    this.#rows = rows;
    this.#runs = runs;
  }

  /** A response; null if it does not exist (any more). */
  retrieve(turn: string): StoredResponse | null {
    this.#runs.resumeRuns();
    const settled = this.#rows.turns.response(turn);
    if (settled) return settled;
    const live = this.#runs.live(turn);
    return live ? runningBody(live.spec, "in_progress") : null;
  }

  /** Tells whether there is such a response. */
  has(turn: string): boolean {
    this.#runs.resumeRuns();
    return this.#rows.turns.hasResponse(turn) || this.#runs.live(turn) !== undefined;
  }

  /** A page of a turn's own input; null if the response does not exist. The 400 if the item `after` is not in the input. */
  inputItems(turn: string, { limit, order, after }: PageRequest): Result<ItemPage> | null {
    if (this.retrieve(turn) === null) return null;
    const stored = this.#rows.turns.items(turn, "input");
    const items = stored === undefined ? this.#runs.live(turn)?.spec.input : (JSON.parse(stored) as Item[]);
    if (!items) return null;
    const ordered = order === "desc" ? items.toReversed() : items;
    if (after === undefined) return { ok: true, value: pageOf(ordered, limit) };
    const at = ordered.findIndex((item) => item.id === after);
    return at === -1 ? refused(unknownCursor(after)) : { ok: true, value: pageOf(ordered.slice(at + 1), limit) };
  }

  /** Waits until a run is settled, and gives its response with its failure; null if it does not exist. */
  async finished(turn: string): Promise<{ response: StoredResponse; failure: ErrorFields | null } | null> {
    this.#runs.resumeRuns();
    const live = this.#runs.live(turn);
    // A hand-over cuts this call off, and it is made again.
    if (live) await waiting(live.ended);
    const response = this.retrieve(turn);
    return response && { response, failure: this.#rows.log.failure(turn) ?? null };
  }

  /**
   * Stops a run; gives the response in its state after that, even if it had ended before. Null if it does not exist.
   * The 400 of a response without `background: true`.
   */
  async cancel(turn: string): Promise<Result<StoredResponse> | null> {
    const found = this.retrieve(turn);
    if (!found) return null;
    const { background } = JSON.parse(found.head) as { background: boolean | null };
    if (!background) return refused(invalidRequest("response_id", "Cannot cancel a synchronous response."));
    await this.#runs.cancel(turn);
    const cancelled = this.retrieve(turn);
    return cancelled && { ok: true, value: cancelled };
  }

  /** A live run, without its content; null if it is not live. */
  liveRun(turn: string): LiveRunFacts | null {
    this.#runs.resumeRuns();
    const run = this.#runs.live(turn);
    if (!run) return null;
    const { model, createdAt, request } = run.spec;
    const isBackground = request.background === true;
    return { model: model.name, createdAt, isBackground, server: run.server() ?? null, events: run.log.events };
  }

  /** Stops a run of either kind; gives its final status. Null if it is not live. */
  async cancelRun(turn: string): Promise<string | null> {
    this.#runs.resumeRuns();
    if (!(await this.#runs.cancel(turn))) return null;
    const ended = this.#rows.turns.response(turn);
    return ended && (JSON.parse(ended.head) as { status: string }).status;
  }
}

/**
 * All responses of a tree, as its nodes, in the order of their ids, which is that of the rows. A page reads only the rows that it
 * shows, however many there are; additions and removals in between neither hide another node nor show it twice.
 */

interface TreeHome {
  rows: HomeRows;
  runs: RunHost;
}

/** The fields of a response's body that a node needs. */
type Head = Pick<ResponseObject, "status" | "background" | "model" | "usage" | "previous_response_id">;

/** Makes a node of a turn that is about to be read, and gives the length of the text it read, in UTF-16 units. */
type Source = () => { node: TreeNode; read: number };

/**
 * A page of nodes. It ends early if it reads a lot. `address` is that of a tree of this home; `after` is the name of a
 * turn of it, which need not exist.
 */
export function treePage(home: TreeHome, address: TreeAddress, { limit, order, after }: PageRequest): ItemPage {
  const nodes: TreeNode[] = [];
  let read = 0;
  for (const source of sourcesOf(home, address, order, after)) {
    // One more than the page has, to show that there are more.
    if (read > MAX_PAGE_LENGTH) return { ...pageOf(nodes, limit), hasMore: true };
    const found = source();
    read += found.read;
    nodes.push(found.node);
    if (nodes.length > limit) break;
  }
  return pageOf(nodes, limit);
}

/** Settled and running responses, in one order. */
function* sourcesOf(
  { rows, runs }: TreeHome,
  { home, tree }: TreeAddress,
  order: "asc" | "desc",
  after: string | undefined,
): Generator<Source> {
  const isBefore = (one: string, other: string) => (order === "asc" ? one < other : one > other);
  const live = runs
    .specs()
    .filter(({ turn }) => turn.startsWith(tree) && (after === undefined || isBefore(after, turn)))
    .sort((one, other) => (isBefore(one.turn, other.turn) ? -1 : 1));
  for (const row of rows.turns.nodes(tree, order, after)) {
    while (live[0] && isBefore(live[0].turn, row.turn)) yield runSource(home, live.shift() as RunSpec);
    yield () => {
      const isTakenOut = (id: string) => rows.items.isTakenOut(id);
      const head = rows.turns.head(row);
      const input = inputPreview(readPrefix(row.input), isTakenOut);
      const output = outputPreview(readPrefix(row.output), isTakenOut);
      const read = head.length + row.input.length + row.output.length;
      return { node: nodeOf(home, row, JSON.parse(head) as Head, { input, output }), read };
    };
  }
  for (const spec of live) yield runSource(home, spec);
}

function runSource(home: string, spec: RunSpec): Source {
  return () => {
    const items = JSON.stringify(spec.input);
    const { head } = runningBody(spec, "in_progress");
    const row = { turn: spec.turn, createdAt: spec.createdAt, position: null, base: null };
    const input = inputPreview(readPrefix(items), () => false);
    const node = nodeOf(home, row, JSON.parse(head) as Head, { input, output: null });
    return { node, read: head.length + items.length };
  };
}

function nodeOf(
  home: string,
  { turn, createdAt, position, base }: Pick<NodeRow, "turn" | "createdAt" | "position" | "base">,
  { status, background, model, usage, previous_response_id }: Head,
  previews: Pick<TreeNode, "input" | "output">,
): TreeNode {
  return {
    id: responseId({ home, turn }),
    object: "response.node",
    previous_response_id,
    position,
    continues_position: base,
    created_at: Math.floor(createdAt / 1000),
    status,
    background,
    model,
    usage: usage && {
      input_tokens: usage.input_tokens,
      output_tokens: usage.output_tokens,
      total_tokens: usage.total_tokens,
    },
    ...previews,
  };
}
