import type { Config } from "../config/index.ts";
import { learnModels } from "../engine/model-lists.ts";
import { resolveModel } from "../engine/models.ts";
import { type Session, Upstream } from "../engine/upstream.ts";
import { hashText } from "../protocol/hash.ts";
import { type TreeAddress, type TurnAddress, treeOf } from "../protocol/ids.ts";

/** Which requests belong together at the model servers: those whose prompts begin alike, so that a cache has them. */

/** What a request shows of what it has in common with others, beside its tree. */
export interface Affinity {
  /** The request's turn can be continued on this server, so that its tree is the same in all turns after it. */
  isRooted: boolean;
  /** What its client says of that: `prompt_cache_key`, or a header that names a session. */
  hint?: string | undefined;
  /** How its prompt begins, hashed; known where it counts. */
  beginning?: string | undefined;
}

/** A turn whose session is wanted. Runs that were kept by earlier versions have no affinity, and can be continued. */
interface SessionOwner extends TurnAddress {
  tenant?: string | undefined;
  affinity?: Affinity | undefined;
}

/**
 * The session of a turn. Its server is chosen by the root of its conversation, wherever that can be gone on with: turns, branches,
 * sockets and runs all have it, and no client needs to say anything. A router behind the server cannot know it of clients that
 * keep their items themselves: to it, what these say comes first.
 */
export function sessionOf(owner: SessionOwner, model: string): Session {
  const { tenant = "", affinity = { isRooted: true } } = owner;
  const { isRooted, hint, beginning } = affinity;
  const root = isRooted ? rootKey(tenant, model, treeOf(owner)) : undefined;
  const said = hint === undefined ? undefined : keyOf(tenant, model, `hint\n${hint}`);
  const seen = beginning === undefined ? undefined : keyOf(tenant, model, `beginning\n${beginning}`);
  const text = said ?? root ?? seen;
  const id = text === undefined ? undefined : hashText(text);
  return { id, key: root ?? said ?? seen, isRoot: isRooted };
}

/** The model is in all of them: its replicas are not another model's, and neither is its cache. */
function keyOf(tenant: string, model: string, rest: string): string {
  return `${tenant}\n${model}\n${rest}`;
}

function rootKey(tenant: string, model: string, { home, tree }: TreeAddress): string {
  return keyOf(tenant, model, `root\n${home}${tree}`);
}

/**
 * A tree for a new conversation, drawn so that its turns go where this one should: to the server that the client's own words lead
 * to, or how its prompt begins, and else to one with little to do; never to one that drains. So requests that bring their history
 * along, and those that continue it here, meet at one server, and nobody has to remember which that is. `draw` gives another tree
 * with each call, of which the last counts.
 * Rejects as `resolveModel` does.
 */
export async function placedTree<Tree extends TreeAddress>(
  { tenant, model: name, affinity }: { tenant: string; model: string | null | undefined; affinity: Affinity },
  draw: () => Tree,
  config: Config,
  signal: AbortSignal,
): Promise<Tree> {
  if (config.modelServers.length === 1 || !affinity.isRooted) return draw();
  const { upstream: model } = await resolveModel(name, config, new Upstream(config), signal);
  const { hint, beginning } = affinity;
  const session = sessionOf({ tenant, home: "", turn: "", affinity: { isRooted: false, hint, beginning } }, model);
  const upstream = new Upstream(config, { model, session });
  await learnModels(upstream.servers, model, signal);
  return upstream.keyOfServer(() => {
    const tree = draw();
    return { made: tree, key: rootKey(tenant, model, tree) };
  });
}
