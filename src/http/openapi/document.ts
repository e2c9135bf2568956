import type { JsonObject } from "@responses-edge/responses-api/json";
import { z } from "zod";
import { type Endpoint, queryFields } from "../endpoint.ts";
import { componentSchemas } from "./components.ts";
import { type Access, GROUPS, type MediaType, type Operation, type OperationAnswer } from "./operation.ts";

/**
 * The API's description: an OpenAPI 3.1 document of all endpoints. Paths, parameters, bodies and answers come from the endpoints'
 * own declarations, and their schemas from the zod schemas that parse requests and that tests check answers with (`schemas.ts`).
 */
export function describeApi(endpoints: readonly Endpoint[]): JsonObject {
  const byPath = Map.groupBy(endpoints, ({ path }) => pathTemplate(path));
  const paths = [...byPath].map(([path, here]) => [
    path,
    Object.fromEntries(here.map((endpoint) => [endpoint.method.toLowerCase(), operationOf(endpoint)])),
  ]);
  return {
    openapi: "3.1.1",
    info: {
      title: "responses-edge",
      version: VERSION,
      summary: "The OpenAI Responses API in front of vLLM.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    tags: Object.entries(GROUPS).map(([name, description]) => ({ name, description })),
    paths: Object.fromEntries(paths) as JsonObject,
    components: {
      schemas: componentSchemas(),
      headers: {
        RequestId: { description: "Names the request in this server's logs.", schema: { type: "string" } },
      },
      responses: {
        Error: {
          description: "An error in OpenAI's shape.",
          headers: REQUEST_ID,
          content: { "application/json": { schema: { $ref: "#/components/schemas/ErrorBody" } } },
        },
      },
      securitySchemes: SECURITY_SCHEMES,
    },
  };
}

/** This API's version, not the package's: it changes with what clients can see. */
const VERSION = "1";

const SECURITY_SCHEMES = {
  apiKey: { type: "http", scheme: "bearer", description: "A tenant's API key, or a token of the configured issuer." },
  rootKey: { type: "http", scheme: "bearer", description: "A root key (`ADMIN_KEY`)." },
  metricsToken: { type: "http", scheme: "bearer", description: "`PROMETHEUS_TOKEN`." },
};

/** Each entry is an alternative. `{}` stands for deployments without keys (`ALLOW_ANONYMOUS`). */
const SECURITY: Record<Access, object[]> = {
  everyone: [],
  tenant: [{ apiKey: [] }, {}],
  root: [{ rootKey: [] }],
  "tenant or root": [{ apiKey: [] }, { rootKey: [] }, {}],
  metrics: [{ metricsToken: [] }, {}],
};

const REQUEST_ID = { "x-request-id": { $ref: "#/components/headers/RequestId" } };

/** The OpenAPI form of a Hono path. */
function pathTemplate(path: string): string {
  return path.replaceAll(/:(\w+)(\{[^}]*\})?/g, "{$1}");
}

function operationOf({ method, path, summary, query, operation }: Endpoint): JsonObject {
  const { id, group, access, body, headers = [], description } = operation;
  const openedBy = openedByOf(operation);
  const parameters = [
    ...[...path.matchAll(/:(\w+)/g)].map(([, name]) => ({
      name,
      in: "path",
      required: true,
      schema: { type: "string" },
    })),
    ...(query ? queryParameters(query) : []),
    ...headers.map((header) => ({ ...header, in: "header", schema: { type: "string" } })),
  ];
  return {
    operationId: id,
    tags: [group],
    summary: plainText(summary),
    ...(description !== undefined && { description }),
    ...(openedBy !== undefined && { "x-opened-by": openedBy }),
    security: SECURITY[access],
    ...(parameters.length > 0 && { parameters }),
    ...(body && {
      requestBody: {
        required: body.isOptional !== true,
        content: {
          [body.type]: { schema: { $ref: `#/components/schemas/${body.name}` } },
          ...(body.orJson && {
            "application/json": { schema: { $ref: `#/components/schemas/${body.orJson}` } },
          }),
        },
      },
    }),
    responses: {
      ...Object.fromEntries(Object.entries(operation.answers).map(([status, answer]) => [status, answerOf(answer)])),
      ...Object.fromEntries(errorStatuses(method, path, operation, query).map((status) => [status, ERROR])),
    },
  };
}

function openedByOf({ access, openedBy }: Operation): Operation["openedBy"] {
  return openedBy ?? (access === "root" ? "ADMIN_KEY" : undefined);
}

const ERROR = { $ref: "#/components/responses/Error" };

/** Errors that follow from an endpoint's declaration, and those that it lists. */
function errorStatuses(
  method: Endpoint["method"],
  path: string,
  operation: Operation,
  query: Endpoint["query"],
): number[] {
  const { access, counted, body, answers, errors = [] } = operation;
  // Every endpoint refuses other hosts' web pages where there are no keys.
  const statuses = new Set<number>([403, ...errors, ...SERVER_ERRORS]);
  if (access !== "everyone") statuses.add(401);
  if (counted) statuses.add(429);
  if (body || query) statuses.add(400);
  if (body) for (const status of [408, 413, 429]) statuses.add(status);
  if (method === "POST") statuses.add(415);
  if (path.includes(":") || openedByOf(operation) !== undefined) statuses.add(404);
  for (const status of Object.keys(answers)) statuses.delete(Number(status));
  return [...statuses].toSorted((one, other) => one - other);
}

/** Every endpoint may answer these. They are listed one by one, because some generators make no code of `5XX`. */
const SERVER_ERRORS = [500, 502, 503, 504, 507];

/**
 * Describes bodies that are streams of values. OpenAPI 3.1 cannot express them; 3.2 has `itemSchema`. A stream that a
 * request asks for instead of one JSON value is in `x-streams`, not in `content`: generators would make a union of
 * both, and no client could read a field of the value without a check.
 */
const STREAMS: Partial<Record<MediaType, string>> = {
  "text/event-stream":
    "As server-sent events: the `data` of each is one such value as JSON, `event` is its `type`; the last `data` is `[DONE]`.",
  "application/jsonl": "JSON lines: each line is one such value.",
};

function answerOf(answer: OperationAnswer): JsonObject {
  const types = Object.entries(answer) as [MediaType, string][];
  const told = types.map(([type]) => STREAMS[type]).filter((text) => text !== undefined);
  const inPlace = types.filter(([type]) => "application/json" in answer && STREAMS[type] !== undefined);
  const content = types
    .filter((type) => !inPlace.includes(type))
    .map(([type, name]) => [type, { schema: { $ref: `#/components/schemas/${name}` } }]);
  const streams = inPlace.map(([type, name]) => [type, { itemSchema: { $ref: `#/components/schemas/${name}` } }]);
  return {
    description: types.length > 0 ? ["The answer.", ...told].join(" ") : "The connection is a WebSocket from here on.",
    headers: REQUEST_ID,
    ...(content.length > 0 && { content: Object.fromEntries(content) as JsonObject }),
    ...(streams.length > 0 && { "x-streams": Object.fromEntries(streams) as JsonObject }),
  };
}

/** The parameters of a query's schema, with the types they are parsed to: numbers and lists. */
function queryParameters(query: z.ZodType): JsonObject[] {
  return Object.entries(queryFields(query)).map(([name, field]) => {
    const { $schema: _, ...schema } = z.toJSONSchema(field, { io: "output" });
    const required = schema.type !== "array" && !field.safeParse(undefined).success;
    // `name[key]=value`.
    const style = schema.type === "object" && { style: "deepObject", explode: true };
    return { name, in: "query", ...(required && { required }), ...style, schema };
  }) as JsonObject[];
}

/** A summary without Markdown's links, which lead to this project's own files, and without escapes. */
function plainText(summary: string): string {
  return summary.replaceAll(/ ?\(\[[^\]]*\]\([^)]*\)\)/g, "").replaceAll("\\|", "|");
}
