import { responseId, type TreeAddress } from "../protocol/ids.ts";
import type { ResponseObject } from "../protocol/response.ts";
import type { TreeNode } from "../protocol/tree.ts";
import type { HomeRows } from "./home-rows.ts";
import { type ItemPage, type PageRequest, pageOf } from "./item-page.ts";
import { MAX_PAGE_LENGTH } from "./limits.ts";
import { inputPreview, outputPreview } from "./previews.ts";
import { runningBody } from "./response-reader.ts";
import type { RunHost } from "./run-host.ts";
import type { RunSpec } from "./run-store.ts";
import type { NodeRow } from "./turn-store.ts";

/**
 * All responses of a tree, as its nodes. They come in the order of their ids, which is that of the rows: a page
 * reads the rows that it shows and no others, however many there are, and what is added or removed meanwhile neither hides
 * another one nor shows it twice.
 */

/** What a node needs of a response's body. */
type Head = Pick<ResponseObject, "status" | "background" | "model" | "usage" | "previous_response_id">;

/** Makes a node of a turn that is about to be read, and says how much text that took, in UTF-16 units. */
type Source = () => { node: TreeNode; read: number };

export class TreeReader {
  readonly #rows: HomeRows;
  readonly #runs: RunHost;

  constructor(rows: HomeRows, runs: RunHost) {
    this.#rows = rows;
    this.#runs = runs;
  }

  /**
   * A page of nodes. It ends early where what it reads is large. `address` is that of a tree of this home; `after`: the name of a
   * turn of it, which need not be there.
   */
  page(address: TreeAddress, { limit, order, after }: PageRequest): ItemPage {
    const nodes: TreeNode[] = [];
    let read = 0;
    for (const source of this.#sources(address, order, after)) {
      // One more than the page has: it tells that there is more.
      if (read > MAX_PAGE_LENGTH) return { ...pageOf(nodes, limit), hasMore: true };
      const found = source();
      read += found.read;
      nodes.push(found.node);
      if (nodes.length > limit) break;
    }
    return pageOf(nodes, limit);
  }

  /** What is settled and what runs, in one order. */
  *#sources({ home, tree }: TreeAddress, order: "asc" | "desc", after: string | undefined): Generator<Source> {
    const isBefore = (one: string, other: string) => (order === "asc" ? one < other : one > other);
    const live = this.#runs
      .specs()
      .filter(({ turn }) => turn.startsWith(tree) && (after === undefined || isBefore(after, turn)))
      .sort((one, other) => (isBefore(one.turn, other.turn) ? -1 : 1));
    for (const row of this.#rows.turns.nodes(tree, order, after)) {
      while (live[0] && isBefore(live[0].turn, row.turn)) yield this.#ofRun(home, live.shift() as RunSpec);
      yield this.#ofRow(home, row);
    }
    for (const spec of live) yield this.#ofRun(home, spec);
  }

  #ofRow(home: string, row: NodeRow): Source {
    return () => {
      const isTakenOut = (id: string) => this.#rows.items.isTakenOut(id);
      const head = this.#rows.turns.head(row);
      const input = inputPreview(row.input, isTakenOut);
      const output = outputPreview(row.output, isTakenOut);
      const read = head.length + row.input.length + row.output.length;
      return { node: nodeOf(home, row, JSON.parse(head) as Head, { input, output }), read };
    };
  }

  #ofRun(home: string, spec: RunSpec): Source {
    return () => {
      const items = JSON.stringify(spec.input);
      const { head } = runningBody(spec, "in_progress");
      const row = { turn: spec.turn, createdAt: spec.createdAt, position: null, base: null };
      const input = inputPreview(items, () => false);
      const node = nodeOf(home, row, JSON.parse(head) as Head, { input, output: null });
      return { node, read: head.length + items.length };
    };
  }
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
