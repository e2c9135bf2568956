/**
 * Checks requests and answers against the API's own description (`GET /openapi.json`): its paths, statuses, media types
 * and schemas.
 */
import { Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js";
import { isObject, type JsonObject, show } from "./violations.ts";

/** The checked parts of a request and its answer. */
export interface DescribedExchange {
  method: string;
  url: URL;
  status: number;
  contentType: string | null;
  /** The JSON that was sent; undefined if none was. */
  sent?: unknown;
  /** The JSON of the answer; undefined for other bodies. */
  answered?: unknown;
}

export interface ApiDescription {
  document: JsonObject;
  /** Every operation, as `GET /v1/models/{id}`. */
  operations: readonly string[];
  /** The operation of a request. Undefined if there is none. */
  operationOf(method: string, path: string): string | undefined;
  /** The differences between an exchange and the description. */
  violations(exchange: DescribedExchange): string[];
  /** Gives the function that finds the differences between a value of an exchange's stream and the description. */
  streamedViolations(exchange: Pick<DescribedExchange, "method" | "url">): (value: unknown) => string[];
}

let described: Promise<ApiDescription> | undefined;

/** A server's description of its API. Only the first server is asked: all servers of a test run have the same build. */
export function descriptionOf(origin: string): Promise<ApiDescription> {
  described ??= askFor(origin).catch((error: unknown) => {
    described = undefined;
    throw error;
  });
  return described;
}

async function askFor(origin: string): Promise<ApiDescription> {
  // Compiling takes long. Meanwhile the server may close an idle connection.
  const answer = await fetch(`${origin}/openapi.json`, { headers: { connection: "close" } });
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(`GET /openapi.json: ${answer.status} ${text}`);
  return compile(text);
}

function compile(text: string): ApiDescription {
  const document = JSON.parse(text) as JsonObject;
  const paths = objectsIn(document.paths);
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(objectsIn(methods)).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      // The name of a model may have slashes.
      pattern: new RegExp(`^${path.replaceAll(/\{\w+\}/g, path.startsWith("/v1/models/") ? ".+" : "[^/]+")}$`),
      operation,
    })),
  );
  const find = (method: string, path: string) => {
    const asked = method === "HEAD" ? "GET" : method;
    return operations.find(
      (each) => each.method === asked && (path in paths ? each.path === path : each.pattern.test(path)),
    );
  };
  const shared = objectsIn(objectsIn(document.components).responses);
  const requests = checker(text, (schema) => schema);
  const answers = checker(text, closed);

  const responseOf = (operation: JsonObject, status: number): JsonObject | undefined => {
    const responses = objectsIn(operation.responses);
    const found = responses[status];
    const name = typeof found?.$ref === "string" ? found.$ref.split("/").at(-1) : undefined;
    return name === undefined ? found : shared[name];
  };
  const schemaFor = (content: unknown, contentType: string | null, streams?: unknown) => {
    const type = (contentType ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
    const media = objectsIn(content)[type] ?? objectsIn(streams)[type];
    return media && { type, reference: String(((media.schema ?? media.itemSchema) as JsonObject).$ref) };
  };

  return {
    document,
    operations: operations.map(({ method, path }) => `${method} ${path}`),
    operationOf(method, path) {
      const found = find(method, path);
      return found && `${found.method} ${found.path}`;
    },
    violations({ method, url, status, contentType, sent, answered }) {
      const found = find(method, url.pathname);
      if (!found) return [];
      const response = responseOf(found.operation, status);
      if (!response) return [`#50 description: no answer with status ${status}`];
      const violations: string[] = [];
      if (response.content !== undefined && method !== "HEAD") {
        const media = schemaFor(response.content, contentType, response["x-streams"]);
        if (!media) violations.push(`#50 description: no answer of type ${contentType} with status ${status}`);
        else if (media.type === "application/json") violations.push(...answers(media.reference, answered));
      }
      const body = found.operation.requestBody;
      if (status < 300 && sent !== undefined && isObject(body)) {
        const media = schemaFor(body.content, "application/json");
        if (media) violations.push(...requests(media.reference, sent).map((text) => `${text} (of the request)`));
      }
      return violations;
    },
    streamedViolations({ method, url }) {
      const operation = find(method, url.pathname)?.operation;
      const response = operation && responseOf(operation, 200);
      const media = response && schemaFor(response.content, "text/event-stream", response["x-streams"]);
      return (value) => (media ? answers(media.reference, value) : ["#50 description: no answer that is a stream"]);
    },
  };
}

/** Checks values with the document's components, each changed by `change`. Each is compiled when it is needed. */
function checker(text: string, change: (schema: JsonObject) => JsonObject) {
  const components = objectsIn(objectsIn((JSON.parse(text) as JsonObject).components).schemas);
  // As for the schemas of OpenAI's types (schemas.ts). The validity of these has a test of its own.
  const quick = { inlineRefs: false, validateSchema: false, meta: false, code: { optimize: false } };
  const ajv = new Ajv2020({ strict: false, discriminator: true, validateFormats: false, ...quick });
  const schemas = Object.fromEntries(
    Object.entries(components).map(([name, schema]) => [name, change(unmapped(schema))]),
  );
  ajv.addSchema({ $id: "openapi", components: { schemas } });
  const checks = new Map<string, ValidateFunction>();
  return (reference: string, value: unknown): string[] => {
    const check = checks.get(reference) ?? ajv.getSchema(`openapi${reference}`);
    if (!check) throw new Error(`The description has no ${reference}`);
    checks.set(reference, check);
    check(value);
    const name = reference.split("/").at(-1);
    return (check.errors ?? []).map((error) => `#50 description: ${name}${toldOf(error)}`);
  };
}

function toldOf({ instancePath, message, keyword, params }: ErrorObject): string {
  const detail: unknown = params.additionalProperty ?? params.allowedValues ?? params.allowedValue ?? params.tagValue;
  return `${instancePath} ${message ?? keyword}${detail === undefined ? "" : ` ${show(detail)}`}`;
}

/** ajv itself finds the member of a union by its `type`, and knows no mappings. */
function unmapped(schema: JsonObject): JsonObject {
  const { discriminator, ...rest } = schema;
  return isObject(discriminator)
    ? { ...rest, type: "object", required: ["type"], discriminator: { propertyName: "type" } }
    : rest;
}

/**
 * A schema that allows no undescribed key in an answer. Clients must not rely on that, so the document does not have
 * it.
 */
function closed(node: JsonObject): JsonObject {
  const entries = Object.entries(node).map(([key, child]) => [
    key,
    Array.isArray(child)
      ? child.map((each: unknown) => (isObject(each) ? closed(each) : each))
      : isObject(child)
        ? closed(child)
        : child,
  ]);
  const copy = Object.fromEntries(entries) as JsonObject;
  const isOpen = !isObject(copy.properties) || "additionalProperties" in copy || copy.type !== "object";
  return isOpen ? copy : { ...copy, additionalProperties: false };
}

function objectsIn(value: unknown): Record<string, JsonObject> {
  if (!isObject(value)) return {};
  return Object.fromEntries(Object.entries(value).filter((entry): entry is [string, JsonObject] => isObject(entry[1])));
}
