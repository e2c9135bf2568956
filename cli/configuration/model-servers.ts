import { DIALECTS, dialectsOfOwners } from "@responses-edge/engines/dialects/all";
import type { Dialect } from "@responses-edge/engines/dialects/dialect";
import { probedDialect } from "@responses-edge/engines/dialects/probes";
import type { ModelServerConfig } from "@responses-edge/engines/settings";
import { mayServeKinds, SEPARATION_REMEDY } from "@responses-edge/engines/tenant-rules";
import { loadConfig, type TextVariables } from "../../src/config/index.ts";
import { systemCode } from "../serve/refusal.ts";
import { ask, isKeyRefusal, type ModelCard, TIMEOUT_MS } from "./model-server-request.ts";
import { modelsInWords } from "./model-traits.ts";

/** The model servers as `check` and the start of `serve` find them: with requests of their own, before any client's. */

export interface FoundServer {
  name: string;
  /** How it answers, in words. */
  answer: string;
  /**
   * `absent`: it does not answer, or not as a model server with a model; that may change. `refused`: every request to it is a 503,
   * because it does not keep tenants apart.
   */
  fault?: "absent" | "refused";
  /** The cards of its models; absent if it lists none. */
  cards?: readonly ModelCard[];
}

/** The fields of the configuration that correct a fault, by name. */
interface Remedies {
  url: string;
  key: string;
}

const OF_ONE: Remedies = { url: "VLLM_BASE_URL", key: "VLLM_API_KEY" };
const OF_SEVERAL: Remedies = { url: "its url in UPSTREAMS", key: "its api_key in UPSTREAM_SECRETS" };

/** Asks all model servers, side by side, for their models and their kinds. Does not throw. */
export function findModelServers(variables: TextVariables): Promise<FoundServer[]> {
  const { modelServers, unsaltedServers } = loadConfig(variables);
  const remedies = variables.UPSTREAMS ? OF_SEVERAL : OF_ONE;
  return Promise.all(
    modelServers.map(async (server): Promise<FoundServer> => {
      const { name } = server;
      try {
        const cards = await cardsOf(server, remedies);
        if (typeof cards === "string") return { name, answer: cards, fault: "absent" };
        const kinds = await kindsOf(server, cards);
        if (unsaltedServers !== undefined && !mayServeKinds(kinds, server, unsaltedServers)) {
          const answer = `answers, and does not separate the prompts of different tenants: every request to it is a 503. ${SEPARATION_REMEDY}`;
          return { name, answer, fault: "refused" };
        }
        const as = kinds.length === 1 && kinds[0] !== DIALECTS.openai ? ` as ${kinds[0]?.title}` : "";
        const { words, refusal } = await modelsInWords(server, kinds[0], cards);
        if (refusal !== undefined) return { name, answer: refusedKey(server, refusal, remedies), fault: "absent" };
        return { name, answer: `answers${as}, with ${words}`, cards };
      } catch (error) {
        const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
        // OpenSSL's errors are long, and have a line break.
        const code = systemCode(cause).replace(/^.*:SSL routines:.*$/s, "EPROTO");
        return { name, answer: `does not answer (${code})${hintOf(code, server, remedies)}`, fault: "absent" };
      }
    }),
  );
}

/** The likely reason why a server does not answer, and the remedy; empty for a rare one. */
function hintOf(code: string, { baseUrl }: ModelServerConfig, { url }: Remedies): string {
  const { host, hostname, protocol } = new URL(baseUrl);
  if (code === "ECONNREFUSED") return `: no program listens at ${host}. Start it, or correct ${url}`;
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return `: no host has the name ${hostname}. Correct ${url}`;
  if (/timeout/i.test(code)) return `: it takes longer than ${TIMEOUT_MS / 1_000} s`;
  if (protocol === "https:" && /certificate|self.signed/i.test(code))
    return ": NODE_EXTRA_CA_CERTS names its authority";
  if (protocol === "https:" && /EPROTO/.test(code)) return `: does it speak http? Correct ${url}`;
  return "";
}

/** The cards of a server's models, or how it answers without any and the remedy, in words. */
async function cardsOf(server: ModelServerConfig, remedies: Remedies): Promise<ModelCard[] | string> {
  const answer = await ask(server, "/models");
  const { status } = answer;
  if (isKeyRefusal(status)) {
    await answer.body?.cancel();
    return refusedKey(server, status, remedies);
  }
  const cards = await listedIn(answer);
  if (cards?.length === 0) return "answers, and has no model: load one there";
  if (cards) return cards;
  const said = answer.ok ? "answers, but lists no models as a model server does" : `answers with status ${status}`;
  const other = await otherUrl(server);
  if (other !== undefined) return `${said} at ${server.baseUrl}/models. Did you mean ${other}? Correct ${remedies.url}`;
  return status === 404 ? `${said} at ${server.baseUrl}/models. Most URLs end in /v1: correct ${remedies.url}` : said;
}

function refusedKey({ apiKey }: ModelServerConfig, status: number, { key }: Remedies): string {
  return `${apiKey === undefined ? "wants a key" : "refuses the key"} (status ${status}): set ${key}`;
}

/** The models in an answer to `/models`; undefined if it is none of a model server. */
async function listedIn(answer: Response): Promise<ModelCard[] | undefined> {
  if (!answer.ok) {
    await answer.body?.cancel();
    return undefined;
  }
  const body: unknown = await answer.json().catch(() => undefined);
  const data = typeof body === "object" && body !== null && "data" in body ? body.data : undefined;
  if (!Array.isArray(data)) return undefined;
  return data.filter((card): card is object => typeof card === "object" && card !== null);
}

/** The usual URL of a model server on the same host, if one answers there. */
async function otherUrl(server: ModelServerConfig): Promise<string | undefined> {
  const baseUrl = `${new URL(server.baseUrl).origin}/v1`;
  if (baseUrl === server.baseUrl) return undefined;
  const answer = await ask({ ...server, baseUrl }, "/models").catch(() => undefined);
  // A key is wanted by a server that knows the path.
  const isThere = answer !== undefined && (isKeyRefusal(answer.status) || (await listedIn(answer)) !== undefined);
  return isThere ? baseUrl : undefined;
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

/** A line of the log about a model server. */
export interface ModelServerLine {
  level: "info" | "warn";
  line: string;
  fields: { model_server: string; fault?: FoundServer["fault"] };
}

/** How each model server answers: as information, or as a warning if it cannot be used as it is. Does not throw. */
export async function modelServerLines(variables: TextVariables): Promise<ModelServerLine[]> {
  const found = await findModelServers(variables);
  return found.map(({ name, answer, fault }) => ({
    level: fault === undefined ? "info" : "warn",
    line: `The model server ${name} ${answer}.`.replace(/([.?])\.$/, "$1"),
    fields: { model_server: name, ...(fault && { fault }) },
  }));
}
