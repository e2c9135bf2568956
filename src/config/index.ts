import { logLine } from "@responses-edge/bounded-io/json-text";
import type { ModelServerConfig } from "@responses-edge/engines/settings";
import { batches } from "./batches.ts";
import { contentLog, contentLogConfig, contentLogMistakes } from "./content-log.ts";
import { fileConfig, fileMistakes, files, type R2Binding } from "./files.ts";
import { guard, guardConfig, guardMistakes } from "./guard.ts";
import { imageConfig, images } from "./images.ts";
import { jwtConfig, type KeyValues, keys, tokenMistakes, tokens } from "./keys.ts";
import { type Overrides, withOverrides } from "./layers.ts";
import { closedFields, harmony, models, VLLM_EXTRAS } from "./models.ts";
import { type Fetch, operatorNetwork, type PrivateNetwork } from "./network.ts";
import { withFile } from "./raw-servers.ts";
import { routesOf } from "./routes.ts";
import { servers } from "./servers.ts";
import { serving, store } from "./serving.ts";
import { signIn, signInConfig, signInMistakes } from "./sign-in.ts";
import { type AnalyticsDataset, telemetry, telemetryConfig, telemetryMistakes } from "./telemetry.ts";
import { toolConfig, tools } from "./tools.ts";
import { readModelServers } from "./upstreams.ts";
import { type Mistake, mistakeText, type NameIn, readSection, type ValuesOf, type Variable } from "./variable.ts";
import { vectorStoreConfig, vectorStores } from "./vector-stores.ts";
import { webhookConfig, webhookGuard, webhookMistakes, webhooks } from "./webhooks.ts";

export type { ContentLogConfig } from "./content-log.ts";
export { type JwtConfig, TOKEN_TENANT_PREFIX } from "./keys.ts";
export type { PassthroughEndpoint, VllmExtra } from "./models.ts";
export { closedFields, PASSTHROUGH_ENDPOINTS, VLLM_EXTRAS } from "./models.ts";
export { ROLES, type Role } from "./roles.ts";
export type { SignInConfig } from "./sign-in.ts";
export type { AnalyticsDataset, OtlpTarget, TelemetryConfig } from "./telemetry.ts";
export type { ToolConfig } from "./tools.ts";

/** Every variable and secret of the Worker, in the order of docs/reference/configuration.md, which is generated from this. */
export const SECTIONS = {
  servers,
  models,
  harmony,
  tools,
  keys,
  tokens,
  signIn,
  store,
  files,
  vectorStores,
  images,
  guard,
  webhooks,
  batches,
  serving,
  telemetry,
  contentLog,
};
type Sections = typeof SECTIONS;
type Values = { [Name in keyof Sections]: ValuesOf<Sections[Name]> };
type VariableName = NameIn<Sections[keyof Sections]>;

export const VARIABLE_NAMES = Object.values(SECTIONS).flatMap(({ variables }) =>
  Object.values(variables).map(({ name }) => name as VariableName),
);

/** The variables, all text. */
export type TextVariables = { [Name in VariableName]?: string };

/** Bindings of some deployments: to a private vLLM, to private networks, to Analytics Engine and to R2. */
interface Bindings {
  VLLM?: { fetch: Fetch };
  PRIVATE_NETWORK?: PrivateNetwork;
  ANALYTICS?: AnalyticsDataset;
  FILES?: R2Binding;
  /** The bytes of the disk that each tenant may fill: a number, from the launcher. */
  DISK_SHARE?: string;
  /** The content of the file of `CONFIG_FILE` when the process began: JSON of {@link TextVariables}. */
  FILE_CONFIGURATION?: string;
}
const BINDING_NAMES: readonly string[] = [
  "VLLM",
  "PRIVATE_NETWORK",
  "ANALYTICS",
  "FILES",
  "DISK_SHARE",
  "FILE_CONFIGURATION",
] satisfies (keyof Bindings)[];

/** The part of the Worker's environment that configures it: the variables and the bindings. */
export type Variables = TextVariables & Bindings;

/** The validated configuration. Durations are in milliseconds, sizes in bytes. */
export type Config = ReturnType<typeof compose>;

/** The deployment's configuration is unusable. No mistake contains its variable's value. The message is for clients. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  /** For operators: `NAME: 'place': the expected value`. */
  readonly mistakes: readonly string[];

  constructor(mistakes: readonly Mistake[]) {
    const withoutPlaces = new Set(mistakes.map(([name, expected]) => mistakeText([name, expected])));
    super([...withoutPlaces].join("; "));
    this.mistakes = mistakes.map(mistakeText);
  }
}

/** Shorter names resemble each other by chance. */
const MIN_LENGTH = 6;

/** Gives unknown names that differ little from a variable's: `[name, meant]`. */
export function misspeltVariables(names: Iterable<string>): [name: string, meant: string][] {
  const known = new Set<string>([...VARIABLE_NAMES, ...BINDING_NAMES]);
  return [...new Set(names).difference(known)].flatMap((name): [string, string][] => {
    if (name.length < MIN_LENGTH) return [];
    const meant = VARIABLE_NAMES.find((other) => isNear(name.toUpperCase().replaceAll("-", "_"), other));
    return meant === undefined ? [] : [[name, meant]];
  });
}

/** True if one text becomes the other by at most `edits` insertions, deletions or substitutions. */
function isNear(a: string, b: string, edits = 2): boolean {
  if (a === b) return true;
  if (edits === 0 || Math.abs(a.length - b.length) > edits) return false;
  let same = 0;
  while (a[same] !== undefined && a[same] === b[same]) same += 1;
  const [restA, restB] = [a.slice(same), b.slice(same)];
  return (
    isNear(restA.slice(1), restB, edits - 1) ||
    isNear(restA, restB.slice(1), edits - 1) ||
    isNear(restA.slice(1), restB.slice(1), edits - 1)
  );
}

/** A deployment's configuration in force. It is replaced as a whole: code that holds one keeps it unchanged. */
interface Deployment {
  /** The file's variables; undefined where there is no file. */
  file: TextVariables | undefined;
  /** The administrators' changes. */
  overrides: Overrides;
  /** The variables of all sources together. */
  variables: Variables;
  config: Config | ConfigError;
}

const deployments = new WeakMap<Variables, Deployment>();

/** The current configuration of an environment, checked as a whole whenever it changes. Throws ConfigError. */
export function loadConfig(env: Variables): Config {
  const { config } = deployments.get(env) ?? begin(env);
  if (config instanceof ConfigError) throw config;
  return config;
}

/** Reads the configuration of an environment for the first time. */
function begin(env: Variables): Deployment {
  const file = env.FILE_CONFIGURATION ? (JSON.parse(env.FILE_CONFIGURATION) as TextVariables) : undefined;
  const variables = file ? withFile(env, file) : env;
  const deployment = { file, overrides: {}, variables, config: readConfig(variables) };
  deployments.set(env, deployment);
  // The operator chooses the names of bindings, so these are left out.
  const texts = Object.entries(env).filter(([, value]) => typeof value === "string");
  for (const [name, meant] of misspeltVariables(texts.map(([name]) => name))) {
    console.warn(logLine({ level: "warn", unknown_variable: name, meant }));
  }
  return deployment;
}

/** The sources of the configuration in force, and the variables that result from them. */
export function sourcesOf(env: Variables): Readonly<Omit<Deployment, "config">> {
  return deployments.get(env) ?? begin(env);
}

/**
 * Puts the file's variables, or administrators' changes, in force for everything that begins from now on. Gives the
 * mistakes of the whole; if there are any, nothing has changed. `isKept`: the changes were valid when they were made,
 * and apply as far as they still are.
 */
export function configure(
  env: Variables,
  change: { file?: TextVariables | undefined; overrides?: Overrides },
  isKept = false,
): readonly string[] {
  const known = deployments.get(env) ?? begin(env);
  const { file, overrides } = { file: known.file, overrides: known.overrides, ...change };
  const below = file ? withFile(env, file) : env;
  const variables = withOverrides(below, overrides);
  const config = readConfig(variables);
  if (!(config instanceof ConfigError)) {
    keepUnchanged(known, variables, config);
    deployments.set(env, { file, overrides, variables, config });
    return [];
  }
  const lower = change.file || isKept ? readConfig(below) : config;
  if (lower instanceof ConfigError) return config.mistakes;
  // The administrators' changes no longer fit the sources below them.
  console.warn(logLine({ level: "warn", overrides_left_out: config.mistakes }));
  keepUnchanged(known, below, lower);
  deployments.set(env, { file, overrides, variables: below, config: lower });
  return [];
}

/** The mistakes of the whole configuration with these changes of administrators. */
export function mistakesWith(env: Variables, overrides: Overrides): readonly string[] {
  const { file } = deployments.get(env) ?? begin(env);
  const config = readConfig(withOverrides(file ? withFile(env, file) : env, overrides));
  return config instanceof ConfigError ? config.mistakes : [];
}

/** Keeps the fetched facts about an issuer whose variables have not changed. */
function keepUnchanged(before: Deployment, variables: Variables, config: Config): void {
  if (before.config instanceof ConfigError) return;
  const names = [SECTIONS.tokens, SECTIONS.signIn].flatMap((section) => Object.values<Variable>(section.variables));
  const textOf = (from: object, name: string) => (from as Record<string, unknown>)[name];
  if (names.some(({ name }) => textOf(before.variables, name) !== textOf(variables, name))) return;
  const { jwt, signIn } = before.config;
  Object.assign(config, { jwt, signIn });
}

function readConfig(env: Variables): Config | ConfigError {
  const single: Mistake[] = [];
  const read = Object.entries(SECTIONS).map(([name, section]) => [name, readSection(section, env, single)]);
  const values = Object.fromEntries(read) as Values;
  const modelServers = readModelServers(values.servers, env);
  const isOpen = values.keys.allowAnonymous && !wantsKeys(values);
  const together = [
    ...modelServers.mistakes,
    ...tokenMistakes(values.tokens, hasOwnKeys(values.keys)),
    ...signInMistakes(values.signIn, values.tokens.issuer),
    ...telemetryMistakes(values.telemetry, isOpen),
    ...contentLogMistakes(values.contentLog, values.telemetry),
    ...webhookMistakes(values.webhooks),
    ...fileMistakes(values.files),
    ...guardMistakes(values.guard),
  ];
  // A variable that is wrong by itself is not compared with others.
  const mistakes = [...single, ...together.filter(([name]) => !single.some(([other]) => other === name))];
  if (mistakes.length > 0) return new ConfigError(mistakes);
  return compose(values, modelServers.servers, env);
}

function hasOwnKeys({ apiKeys, adminKeys }: KeyValues): boolean {
  return apiKeys.length > 0 || adminKeys.length > 0;
}

function wantsKeys({ keys, tokens }: Values): boolean {
  return hasOwnKeys(keys) || tokens.issuer !== undefined;
}

/** True if the deployment has administrators: with a root key, or with a token that has a role. */
function hasAdminApi({ keys, tokens }: Values): boolean {
  return keys.adminKeys.length > 0 || Object.keys(tokens.roles).length > 0;
}

/** True if there may be several tenants: the admin API and tokens may name any number. */
function hasTenants({ keys: { adminKeys, apiKeys }, tokens }: Values): boolean {
  const { size } = new Set(apiKeys.map(({ tenant }) => tenant));
  return adminKeys.length > 0 || tokens.issuer !== undefined || size > 1;
}

function compose(values: Values, modelServers: readonly ModelServerConfig[], env: Variables) {
  const { baseUrl, apiKey, transport, upstreams, upstreamSecrets, dialect, ...timing } = values.servers;
  const { apiKeys, allowAnonymous, encryptionKeys, ...keys } = values.keys;
  const { logIntervalMs, unreadLogIntervalMs, ...kept } = values.store;
  const { routes, modelAliases, modelFallbacks, vllmExtras, ...models } = values.models;
  // A server without keys serves only programs of this machine, which may send all of them.
  const extras = vllmExtras ?? (wantsKeys(values) ? [] : VLLM_EXTRAS);
  const network = operatorNetwork(env);
  return {
    /** At least one; most deployments have exactly one. */
    modelServers,
    ...timing,
    /** Undefined if there cannot be two tenants. */
    unsaltedServers: hasTenants(values) ? timing.unsaltedServers : undefined,
    ...models,
    /** By the names that clients use. */
    routes: routesOf({ routes, modelAliases, modelFallbacks }),
    closedFields: closedFields(extras, models.vllmExtraFields),
    harmony: values.harmony,
    tools: toolConfig(values.tools, network, imageConfig(values.images, values.servers, network, modelAliases)),
    dropsUnknownTools: values.tools.dropsUnknownTools,
    vectorStores: vectorStoreConfig(values.vectorStores, values.servers, network),
    /** Undefined where nothing judges. */
    guard: guardConfig(values.guard, values.servers, network, modelAliases),
    apiKeys,
    allowAnonymous,
    encryptionKeys,
    /** The settings of keys that exist without a deployment, and of their counters. */
    keys: {
      ...keys,
      /** The bytes of the disk that a tenant without a limit of its own may fill; 0 is any number. */
      diskShare: env.STORED_BYTES_PER_TENANT === undefined ? Number(env.DISK_SHARE ?? 0) : 0,
    },
    jwt: jwtConfig(values.tokens, network),
    /** Undefined if users sign in to the console only with keys. */
    signIn: signInConfig(values.signIn),
    /** True if there is an admin API, and so a directory that knows keys and limits. */
    hasAdminApi: hasAdminApi(values),
    /** True if every caller needs a key of one kind or another. */
    wantsKeys: wantsKeys(values),
    ...kept,
    eventLog: { intervalMs: logIntervalMs, unreadIntervalMs: unreadLogIntervalMs },
    files: fileConfig(values.files, env.FILES, network),
    webhook: webhookConfig(values.webhooks, network),
    webhookGuard: webhookGuard(values.webhooks, network, values.tools.dohUrl),
    batches: values.batches,
    /** True where batches send requests. */
    sendsBatches: false,
    ...values.serving,
    /** Undefined if nothing is exported. */
    telemetry: telemetryConfig(values.telemetry, env.ANALYTICS, network),
    /** Undefined if content leaves this server only in answers. */
    contentLog: contentLogConfig(values.contentLog, values.telemetry, network),
  };
}
