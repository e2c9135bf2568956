import type { Config } from "../config.ts";
import { learnModels } from "../engine/model-lists.ts";
import { resolveModel } from "../engine/models.ts";
import { type Session, Upstream } from "../engine/upstream.ts";
import { hashText } from "../protocol/hash.ts";
import { newHome } from "../protocol/ids.ts";

/** Which requests belong together at the model servers: those whose prompts begin alike, so that a cache has them. */

/** What a request shows of what it has in common with others, beside its home. */
export interface Affinity {
  /** The request's turn can be continued on this server, so that its home is the same in all turns after it. */
  isRooted: boolean;
  /** What its client says of that: `prompt_cache_key`, or a header that names a session. */
  hint?: string | undefined;
  /** How its prompt begins, hashed; known where it counts. */
  beginning?: string | undefined;
}

/** A turn whose session is wanted. Runs that were kept by earlier versions have no affinity, and can be continued. */
interface SessionOwner {
  tenant?: string | undefined;
  home: string;
  affinity?: Affinity | undefined;
}

/**
 * The session of a turn. Its server is chosen by the root of its conversation, wherever that can be gone on with: turns, branches,
 * sockets and runs all have it, and no client needs to say anything. A router behind the server cannot know it of clients that
 * keep their items themselves: to it, what these say comes first.
 */
export function sessionOf({ tenant = "", home, affinity = { isRooted: true } }: SessionOwner, model: string): Session {
  const { isRooted, hint, beginning } = affinity;
  const root = isRooted ? rootKey(tenant, model, home) : undefined;
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

function rootKey(tenant: string, model: string, home: string): string {
  return keyOf(tenant, model, `root\n${home}`);
}

/**
 * A home for a new conversation, made so that its turns go where this one should: to the server that the client's own words lead
 * to, or how its prompt begins, and else to one with little to do; never to one that drains. So requests that bring their history
 * along, and those that continue it here, meet at one server, and nobody has to remember which that is.
 * Undefined where there is nothing to choose. Rejects as `resolveModel` does.
 */
export async function placedHome(
  { tenant, model: name, affinity }: { tenant: string; model: string | null | undefined; affinity: Affinity },
  config: Config,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (config.modelServers.length === 1 || !affinity.isRooted) return undefined;
  const { upstream: model } = await resolveModel(name, config, new Upstream(config), signal);
  const { hint, beginning } = affinity;
  const session = sessionOf({ tenant, home: "", affinity: { isRooted: false, hint, beginning } }, model);
  const upstream = new Upstream(config, { model, session });
  await learnModels(upstream.servers, model, signal);
  return upstream.keyOfServer(() => {
    const home = newHome();
    return { made: home, key: rootKey(tenant, model, home) };
  });
}
