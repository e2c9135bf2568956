import { describedAs } from "@responses-edge/bounded-io/schemas/described-as";
import { DIALECT_NAMES } from "@responses-edge/engines/dialects/dialect";
import { ENGINES } from "@responses-edge/turn/contract/engine";
import { z } from "zod";
import { MAX_SERVERS } from "./raw-servers.ts";
import { headerSecret, serverUrl } from "./values.ts";

/** The operator's settings of one of several model servers: an entry of `UPSTREAMS`, and of its secrets. */

export const MAX_WEIGHT = 1_000_000;
const MAX_MODELS = 1_000;

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;
export const serverName = z.string().regex(NAME, "expected a name of letters, digits, '.', '_' and '-'");

const modelName = z.string().min(1).max(1024);

/** A model's name, or the names that clients and the server use for it. */
const servedModels = z
  .union([z.array(modelName).min(1).max(MAX_MODELS), z.record(modelName, modelName)])
  .transform(
    (given) => new Map(Array.isArray(given) ? given.map((name) => [name, name] as const) : Object.entries(given)),
  )
  .refine(({ size }) => size > 0 && size <= MAX_MODELS, `expected 1 to ${MAX_MODELS} models`);

/** Headers that this server itself sends to a model server, or that frame a request. */
const OWN_HEADERS = new Set([
  ...["accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"],
  ...["host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "x-session-id"],
]);

const headers = z.record(
  describedAs(
    z
      .string()
      .regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/, "expected names of headers")
      .transform((name) => name.toLowerCase())
      .refine((name) => !OWN_HEADERS.has(name), "expected no header that this server sets itself"),
    () => z.string(),
  ),
  z
    .string()
    .trim()
    .regex(/^[\x20-\x7e]{1,8192}$/, "expected headers of visible ASCII characters"),
);

const secretFields = { api_key: headerSecret.nullish(), headers: headers.optional() };

type SecretFields = { api_key?: string | null | undefined; headers?: Readonly<Record<string, string>> | undefined };

const isOneCredential = ({ api_key: key, headers }: SecretFields) =>
  key == null || headers?.authorization === undefined;
const ONE_CREDENTIAL = "expected either 'api_key' or the header 'authorization', and not both";

/** An entry of `UPSTREAM_SECRETS`. */
export const serverSecrets = z.strictObject(secretFields).refine(isOneCredential, ONE_CREDENTIAL);
export type ServerSecrets = z.output<typeof serverSecrets>;

/** The fields of an entry, except its name. Each tells operators what it does; docs/fleet.md has more. */
export const serverFields = z.strictObject({
  name: serverName
    .optional()
    .describe(
      "The server's name in health, logs and `x-upstream`; conversations find their server by it. Default: derived from the address.",
    ),
  url: serverUrl.optional().describe("With `/v1`."),
  binding: z
    .string()
    .min(1, "expected the name of a binding")
    .optional()
    .describe("The name of a service binding or Workers VPC service, instead of `url`."),
  weight: z
    .number()
    .min(0)
    .max(MAX_WEIGHT)
    .default(1)
    .describe(
      "The server's share of the conversations, relative to the others'. `0`: it keeps its own, and gets no new ones.",
    ),
  drain: z
    .boolean()
    .default(false)
    .describe(
      "Its conversations move to other servers with their next turn, and it gets no new ones. Running turns end there.",
    ),
  models: servedModels
    .optional()
    .describe("The only models that the gateway asks it for: a list, or an object from the clients' names to its own."),
  engine: z.enum(ENGINES).optional().describe("The engine of all its models."),
  salted: z.boolean().optional().describe("Whether it separates tenants."),
  dialect: z.enum(DIALECT_NAMES).optional().describe("The kind of server."),
  shared_cache: z.boolean().default(false).describe("Accepts that tenants share its prefix cache."),
  max_in_flight: z
    .int()
    .min(1)
    .optional()
    .describe("Most requests for answers in progress there at a time; more wait, and tenants take turns."),
  discover: z.literal("dns").optional().describe("Makes a server of each address that DNS has for the host in `url`."),
  ...secretFields,
});

/** An entry of `UPSTREAMS`. */
export const serverEntry = serverFields
  .refine(
    ({ url, binding }) => (url === undefined) !== (binding === undefined),
    "expected either 'url' or 'binding', and not both",
  )
  .refine(
    ({ url, discover }) => discover === undefined || url?.startsWith("http://") === true,
    "'discover': expected with a 'url' that begins with http://: no certificate names an address",
  )
  .refine(isOneCredential, ONE_CREDENTIAL);
export type ServerEntry = z.output<typeof serverEntry>;

/** The JSON text of `UPSTREAMS`, as the file has it: a list, or entries by name. */
export const upstreamsText = describedAs(z.string(), () =>
  z.union([z.array(serverFields).min(1).max(MAX_SERVERS), z.record(serverName, serverFields.omit({ name: true }))]),
);

/** The JSON text of `UPSTREAM_SECRETS`, as the file has it. */
export const upstreamSecretsText = describedAs(z.string(), () => z.record(serverName, z.strictObject(secretFields)));
