/**
 * A conversation as the tree that it is, made of the nodes that `GET /v1/responses/{id}/tree` gives in pages.
 *
 * @typedef {object} TreeNode As the API has it (docs/tree.md)
 * @property {string} id
 * @property {string | null} previous_response_id
 * @property {number | null} position
 * @property {number | null} continues_position
 * @property {number} created_at
 * @property {string} status
 * @property {boolean} background
 * @property {string} model
 * @property {{ input_tokens: number, output_tokens: number, total_tokens: number } | null} usage
 * @property {{ type: string, text: string } | null} input
 * @property {{ type: string, text: string } | null} output
 *
 * @typedef {object} Entry A node in its place
 * @property {TreeNode} node
 * @property {Entry | undefined} parent
 * @property {Entry[]} children oldest first
 * @property {number} index among its parent's children, from 0
 * @property {number} depth of a root: 1
 * @property {number} indent how far it is moved in: only where its parent has several children, so that a long conversation stays straight
 * @property {boolean} isOrphan True if the response that it continues is not there any more.
 */

export class Tree {
  /** @type {Map<string, Entry>} */
  #entries = new Map();
  /** @type {Entry[]} */
  roots = [];

  /** @param {readonly TreeNode[]} nodes in any order */
  constructor(nodes) {
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

  /** Nodes that nothing continues. */
  get leaves() {
    let count = 0;
    for (const { children } of this.#entries.values()) if (children.length === 0) count += 1;
    return count;
  }

  /** @param {string} id */
  get(id) {
    return this.#entries.get(id);
  }

  /** The turns of the conversation by their places. */
  #spoken() {
    const turns = [...this.#entries.values()].filter(({ node }) => node.position !== null);
    return turns.sort((one, other) => (one.node.position ?? 0) - (other.node.position ?? 0));
  }

  /**
   * The nodes that are to be seen, from top to bottom: each node is followed by what continues it, but for those in `closed`.
   * @param {ReadonlySet<string>} closed ids
   * @returns {Entry[]}
   */
  rows(closed) {
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

/** The last of the turns that has a place up to this one: the one at that place may be no response. @param {Entry[]} turns @param {number | null} position */
function lastUpTo(turns, position) {
  if (position === null) return undefined;
  let [low, high] = [0, turns.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((turns[middle]?.node.position ?? 0) <= position) low = middle + 1;
    else high = middle;
  }
  return turns[low - 1];
}

/** A node and all that it continues, oldest first. @param {Entry} entry */
export function pathTo(entry) {
  /** @type {Entry[]} */
  const path = [];
  for (let at = /** @type {Entry | undefined} */ (entry); at; at = at.parent) path.push(at);
  return path.reverse();
}

/**
 * Where two branches part.
 * @param {Entry} one
 * @param {Entry} other
 * @returns {{ common: Entry | undefined, one: Entry[], other: Entry[] }} the last node that both continue, and what each has after it
 */
export function compared(one, other) {
  const [path, otherPath] = [pathTo(one), pathTo(other)];
  let shared = 0;
  while (shared < path.length && path[shared] === otherPath[shared]) shared += 1;
  return { common: path[shared - 1], one: path.slice(shared), other: otherPath.slice(shared) };
}
