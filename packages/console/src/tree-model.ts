/** A conversation as a tree. It is made of the nodes that `GET /v1/responses/{id}/tree` returns in pages. */

/** In the API's form (docs/storage.md) */
export interface TreeNode {
  id: string;
  previous_response_id: string | null;
  position: number | null;
  continues_position: number | null;
  created_at: number;
  status: string;
  background: boolean;
  model: string;
  usage: { input_tokens: number; output_tokens: number; total_tokens: number } | null;
  input: { type: string; text: string } | null;
  output: { type: string; text: string } | null;
}

/** A node in its place */
export interface Entry {
  node: TreeNode;
  parent: Entry | undefined;
  /** oldest first */
  children: Entry[];
  /** among its parent's children, from 0 */
  index: number;
  /** 1 for a root */
  depth: number;
  /** its indentation. It grows only if the parent has several children, so that a long conversation stays straight */
  indent: number;
  /** True if the response that it continues no longer exists. */
  isOrphan: boolean;
}

export class Tree {
  #entries: Map<string, Entry> = new Map();
  roots: Entry[] = [];

  /** @param nodes in any order */
  constructor(nodes: readonly TreeNode[]) {
    const sorted = [...nodes].sort((one, other) => one.created_at - other.created_at || (one.id < other.id ? -1 : 1));
    for (const node of sorted) {
      const entry = { node, parent: undefined, children: [], index: 0, depth: 1, indent: 0, isOrphan: false };
      this.#entries.set(node.id, entry);
    }
    const spoken = this.#spoken();
    for (const entry of this.#entries.values()) {
      const { previous_response_id: previous, continues_position: position } = entry.node;
      const parent = previous === null ? lastUpTo(spoken, position) : this.#entries.get(previous);
      entry.isOrphan = previous !== null && !parent;
      const siblings = parent ? parent.children : this.roots;
      entry.parent = parent;
      entry.index = siblings.length;
      siblings.push(entry);
    }
    for (const entry of this.rows(new Set())) {
      const { parent } = entry;
      if (!parent) continue;
      entry.depth = parent.depth + 1;
      entry.indent = parent.indent + (parent.children.length > 1 ? 1 : 0);
    }
  }

  get size() {
    return this.#entries.size;
  }

  /** Nodes that no other node continues. */
  get leaves() {
    let count = 0;
    for (const { children } of this.#entries.values()) if (children.length === 0) count += 1;
    return count;
  }

  get(id: string) {
    return this.#entries.get(id);
  }

  /** The turns of the conversation by their positions. */
  #spoken() {
    const turns = [...this.#entries.values()].filter(({ node }) => node.position !== null);
    return turns.sort((one, other) => (one.node.position ?? 0) - (other.node.position ?? 0));
  }

  /**
   * The visible nodes from top to bottom. Each node is followed by the nodes that continue it, unless it is in
   * `closed`.
   * @param closed ids
   */
  rows(closed: ReadonlySet<string>): Entry[] {
    const rows = [];
    const waiting = this.roots.toReversed();
    for (let entry = waiting.pop(); entry; entry = waiting.pop()) {
      rows.push(entry);
      if (closed.has(entry.node.id)) continue;
      for (let index = entry.children.length - 1; index >= 0; index -= 1) {
        const child = entry.children[index];
        if (child) waiting.push(child);
      }
    }
    return rows;
  }
}

/** The last turn with a position up to this one. The item at the position itself may not be a response. */
function lastUpTo(turns: Entry[], position: number | null) {
  if (position === null) return undefined;
  let [low, high] = [0, turns.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((turns[middle]?.node.position ?? 0) <= position) low = middle + 1;
    else high = middle;
  }
  return turns[low - 1];
}

/** A node and all nodes that continue it, oldest first. */
export function pathTo(entry: Entry) {
  const path: Entry[] = [];
  for (let at = entry as Entry | undefined; at; at = at.parent) path.push(at);
  return path.reverse();
}

/**
 * The point where two branches part.
 * @returns the last common node, and the nodes of each branch after it
 */
export function compared(one: Entry, other: Entry): { common: Entry | undefined; one: Entry[]; other: Entry[] } {
  const [path, otherPath] = [pathTo(one), pathTo(other)];
  let shared = 0;
  while (shared < path.length && path[shared] === otherPath[shared]) shared += 1;
  return { common: path[shared - 1], one: path.slice(shared), other: otherPath.slice(shared) };
}
