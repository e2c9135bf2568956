import { DIALECTS, dialectsOfOwners } from "@responses-edge/engines/dialects/all";
import type { Dialect } from "@responses-edge/engines/dialects/dialect";
import { probedDialect } from "@responses-edge/engines/dialects/probes";
import type { ModelServerConfig } from "@responses-edge/engines/settings";
import { mayServeKinds, SEPARATION_REMEDY } from "@responses-edge/engines/tenant-rules";
import { loadConfig, type TextVariables } from "../../src/config/index.ts";
import { systemCode } from "../serve/refusal.ts";

/** The model servers as `check` and the start of `serve` find them: with requests of their own, before any client's. */

/** The time that a model server has to answer. Milliseconds. */
const TIMEOUT_MS = 5_000;

export interface FoundServer {
  name: string;
  /** How it answers, in words. */
  answer: string;
  /**
   * `absent`: it does not answer, or not as a model server; that may change. `refused`: every request to it is a 503,
   * because it does not keep tenants apart.
   */
  fault?: "absent" | "refused";
  /** The cards of its models; absent if it lists none. */
  cards?: readonly ModelCard[];
}

/** The fields of a card that are read here. They may be anything. */
export interface ModelCard {
  id?: unknown;
  owned_by?: unknown;
}

/** Asks all model servers, side by side, for their models and their kinds. Does not throw. */
export function findModelServers(variables: TextVariables): Promise<FoundServer[]> {
  const { modelServers, unsaltedServers } = loadConfig(variables);
  return Promise.all(
    modelServers.map(async (server): Promise<FoundServer> => {
      const { name } = server;
      try {
        const cards = await cardsOf(server);
        if (typeof cards === "string") return { name, answer: cards, fault: "absent" };
        if (unsaltedServers === undefined || mayServeKinds(await kindsOf(server, cards), server, unsaltedServers)) {
          return { name, answer: "answers", cards };
        }
        const answer = `answers, and does not separate the prompts of different tenants: every request to it is a 503. ${SEPARATION_REMEDY}`;
        return { name, answer, fault: "refused" };
      } catch (error) {
        const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
        return { name, answer: `does not answer (${systemCode(cause)})`, fault: "absent" };
      }
    }),
  );
}

/** The cards of a server's models, or how it answers without any, in words. */
async function cardsOf(server: ModelServerConfig): Promise<ModelCard[] | string> {
  const answer = await ask(server, "/models");
  if (!answer.ok) {
    await answer.body?.cancel();
    const hint = answer.status === 404 ? `: has it ${server.baseUrl}/models? Most URLs end in /v1` : "";
    return `answers with status ${answer.status}${hint}`;
  }
  const body: unknown = await answer.json().catch(() => undefined);
  const data = typeof body === "object" && body !== null && "data" in body ? body.data : undefined;
  if (!Array.isArray(data)) return "answers, but lists no models as a model server does";
  return data.filter((card): card is object => typeof card === "object" && card !== null);
}

/** The kinds behind a server's URL, as the gateway recognises them; none if the server does not show it. */
async function kindsOf(server: ModelServerConfig, cards: readonly ModelCard[]): Promise<Dialect[]> {
  if (server.dialect !== undefined) return [DIALECTS[server.dialect]];
  const owners = new Set(cards.flatMap(({ owned_by: owner }) => (typeof owner === "string" ? owner : [])));
  const known = dialectsOfOwners([...owners]);
  if (owners.size === 1 && known.length === 1) return known;
  const probed = await probedDialect(async (path) => {
    const answer = await ask(server, path);
    if (answer.ok) return answer.json().catch(() => null);
    await answer.body?.cancel();
    return null;
  });
  return probed ? [probed, ...known] : known;
}

/** Asks a path below `/v1`, or from the root if it begins with `//`; by POST with a body. */
export function ask({ baseUrl, apiKey, headers }: ModelServerConfig, path: string, body?: object): Promise<Response> {
  const url = path.startsWith("//") ? baseUrl.replace(/\/v1$/, "") + path.slice(1) : baseUrl + path;
  const authorization = apiKey === undefined ? undefined : { authorization: `Bearer ${apiKey}` };
  return fetch(url, {
    headers: { ...headers, ...authorization, ...(body && { "content-type": "application/json" }) },
    ...(body && { method: "POST", body: JSON.stringify(body) }),
    redirect: "manual",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
}

/** Tells of each model server that cannot be used as it is. Does not throw. */
export async function tellModelServers(
  variables: TextVariables,
  tell: (line: string, fields: { model_server: string; fault: string }) => void,
): Promise<void> {
  for (const { name, answer, fault } of await findModelServers(variables)) {
    if (fault !== undefined)
      tell(`The model server ${name} ${answer}.`.replace(/\.\.$/, "."), { model_server: name, fault });
  }
}
