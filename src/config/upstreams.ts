import type { ModelServerConfig } from "@responses-edge/engines/settings";
import { type Fetch, type OperatorNetwork, operatorNetwork, type PrivateNetwork, withoutRedirects } from "./network.ts";
import { baseUrlOf, defaultName, entriesOf, MAX_SERVERS } from "./raw-servers.ts";
import { type ServerEntry, type ServerSecrets, serverEntry, serverSecrets } from "./server-entry.ts";
import type { ServerValues } from "./servers.ts";
import { faultsOf, type Mistake } from "./variable.ts";

/** Reads the model servers of a deployment: `UPSTREAMS` with its secrets, or the one of `VLLM_BASE_URL`. */

/** The bindings that are read here. The operator names the bindings to model servers. */
type Bindings = { PRIVATE_NETWORK?: PrivateNetwork };

/** The JSON of a text; undefined if it is invalid. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

interface ModelServers {
  servers: readonly ModelServerConfig[];
  mistakes: readonly Mistake[];
}

/** Gives the model servers, at least one if there is no mistake, and all mistakes. `env` has the bindings. */
export function readModelServers(values: ServerValues, env: Bindings): ModelServers {
  if (values.upstreams !== undefined) return readPool(values, values.upstreams, env);
  const mistakes: Mistake[] = [];
  const { baseUrl: url, transport, upstreamSecrets } = values;
  const binding = bindingOf(env, "VLLM");
  if (upstreamSecrets !== undefined)
    mistakes.push(["UPSTREAM_SECRETS", "has an effect only with UPSTREAMS: set that, too, or remove this"]);
  if (!url && !binding) {
    const mistake = "set it to the vLLM server's URL, such as http://gpu:8000/v1, or set UPSTREAMS";
    mistakes.push(["VLLM_BASE_URL", mistake]);
  }
  if (binding && transport !== "fetch") {
    mistakes.push(["VLLM_TRANSPORT", "expected fetch: the binding VLLM has no sockets"]);
  }
  const given = { url: url ?? "http://vllm/v1", weight: 1, drain: false, shared_cache: false };
  return { servers: [toServer(given, "vllm", binding, operatorNetwork(env), undefined, values)], mistakes };
}

function readPool(values: ServerValues, text: string, env: Bindings): ModelServers {
  const mistakes: Mistake[] = [];
  const wrong = (mistake: string, place?: string) => mistakes.push(["UPSTREAMS", mistake, place]);
  if (values.baseUrl !== undefined) wrong("expected without VLLM_BASE_URL: name all servers here");
  const json = entriesOf(parseJson(text));
  if (!json) {
    wrong(`expected a JSON array of 1 to ${MAX_SERVERS} servers such as [{"url":"http://gpu:8000/v1"}]`);
    return { servers: [], mistakes };
  }
  const secrets = readSecrets(values.upstreamSecrets, mistakes);
  const network = operatorNetwork(env);
  const servers: ModelServerConfig[] = [];
  for (const [index, given] of json.entries()) {
    const read = serverEntry.safeParse(given);
    if (!read.success) {
      for (const { place, expected } of faultsOf(read.error)) wrong(expected, `server ${index + 1}: ${place}`);
      continue;
    }
    const binding = read.data.binding === undefined ? undefined : bindingOf(env, read.data.binding);
    if (read.data.binding !== undefined && !binding)
      wrong(`server ${index + 1}: 'binding' names no service binding of this Worker`);
    if (binding && values.transport !== "fetch") {
      mistakes.push(["VLLM_TRANSPORT", "expected fetch: a binding has no sockets"]);
    }
    const name = read.data.name ?? defaultName(read.data);
    const same = servers.findIndex((other) => other.name === name || other.baseUrl === baseUrlOf(read.data));
    if (same >= 0) wrong(`server ${index + 1}: an earlier server has its name or its URL`);
    const { api_key, headers } = read.data;
    const own = api_key === undefined && headers === undefined ? secrets.get(name) : { api_key, headers };
    servers.push(toServer(read.data, name, binding, network, own, values));
  }
  const names = new Set(servers.map(({ name }) => name));
  // Skipped if a server is invalid, because its name is unknown then.
  if (servers.length === json.length && [...secrets.keys()].some((name) => !names.has(name))) {
    mistakes.push(["UPSTREAM_SECRETS", "names a server that UPSTREAMS does not have"]);
  }
  if (bindingOf(env, "VLLM") && !json.some((given) => (given as Partial<ServerEntry> | null)?.binding === "VLLM")) {
    wrong('the binding VLLM is set, and no server names it: add {"binding":"VLLM"}, or remove the binding');
  }
  if (servers.length === json.length && servers.every(({ drains }) => drains)) {
    wrong("expected at least one server that takes new conversations");
  }
  return { servers, mistakes };
}

/** A server's secrets, by its name. */
function readSecrets(text: string | undefined, mistakes: Mistake[]): ReadonlyMap<string, ServerSecrets> {
  const secrets = new Map<string, ServerSecrets>();
  if (text === undefined) return secrets;
  const wrong = (mistake: string, place?: string) => mistakes.push(["UPSTREAM_SECRETS", mistake, place]);
  const json = parseJson(text);
  if (typeof json !== "object" || json === null || Array.isArray(json)) {
    wrong('expected a JSON object such as {"gpu-1":{"api_key":"…","headers":{"cf-access-client-id":"…"}}}');
    return secrets;
  }
  for (const [index, [name, given]] of Object.entries(json).entries()) {
    const read = serverSecrets.safeParse(given);
    if (read.success) secrets.set(name, read.data);
    else for (const { place, expected } of faultsOf(read.error)) wrong(expected, `entry ${index + 1}: ${place}`);
  }
  return secrets;
}

/** A model with a task of its own. Without its own server it is one of the pool's. */
export interface OwnModel {
  name: string;
  server: ModelServerConfig | undefined;
}

/** The model of a name, if there is one. Its own server is not in the pool, and gets no prompt whose timing could tell tenants apart. */
export function ownModel(
  name: string | undefined,
  { url, apiKey }: { url: string | undefined; apiKey: string | undefined },
  serverName: string,
  network: OperatorNetwork,
  values: ServerValues,
): OwnModel | undefined {
  if (name === undefined) return undefined;
  if (url === undefined) return { name, server: undefined };
  const given = { url, weight: 1, drain: false, shared_cache: true };
  const secrets = { api_key: apiKey ?? null, headers: {} };
  // Its requests are parts of turns, which have waited already.
  return { name, server: toServer(given, serverName, undefined, network, secrets, { ...values, maxInFlight: 0 }) };
}

function toServer(
  given: Omit<ServerEntry, "name">,
  name: string,
  binding: Fetch | undefined,
  network: OperatorNetwork,
  secrets: ServerSecrets | undefined,
  { apiKey: sharedKey, transport, dialect: sharedDialect, maxInFlight: sharedMax }: ServerValues,
): ModelServerConfig {
  const { weight, drain, models, engine, salted, dialect = sharedDialect } = given;
  const { api_key: ownKey, headers = {} } = secrets ?? {};
  const hasAuthorization = headers.authorization !== undefined;
  return {
    name,
    baseUrl: baseUrlOf(given),
    fetch: binding ?? network.fetch,
    transport,
    connector: network.connector,
    /** A server without its own key gets the key that all servers share. `null` in its secrets means no key. */
    apiKey: hasAuthorization ? undefined : ownKey === undefined ? sharedKey : (ownKey ?? undefined),
    headers,
    weight: weight || 1,
    drains: drain || weight === 0,
    keepsConversations: !drain,
    models,
    engine,
    salted,
    dialect,
    sharesCache: given.shared_cache,
    maxInFlight: given.max_in_flight ?? (sharedMax || undefined),
  };
}

/** The fetch of a binding; undefined if the environment lacks it. */
function bindingOf(env: object, name: string): Fetch | undefined {
  const binding: unknown = Object.hasOwn(env, name) ? (env as Record<string, unknown>)[name] : undefined;
  if (typeof binding !== "object" || binding === null || !("fetch" in binding)) return undefined;
  if (typeof binding.fetch !== "function") return undefined;
  return withoutRedirects((url, init) => (binding as { fetch: Fetch }).fetch(url, init));
}
