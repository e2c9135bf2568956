import type { Role, Variables } from "../../config/index.ts";
import type { AnswerName, BodyName } from "./schemas.ts";

/** An endpoint's access and counting, and its entry in the API's description (`GET /openapi.json`). */
export type Operation = Admittance & Description;

/** An endpoint's entry in the description, without its route, query and summary. */
interface Description {
  /** Its `operationId`. Generators name functions after it, so it never changes. */
  id: string;
  group: Group;
  /**
   * The variable without which a deployment does not have the endpoint: its path is then unknown. Root keys' operations
   * need `ADMIN_KEY`.
   */
  openedBy?: keyof Variables;
  body?: OperationBody;
  /** Request headers that change the effect. */
  headers?: readonly OperationHeader[];
  /** The answers by status: the names of `schemas.ts` by media type. All other statuses are errors. */
  answers: Readonly<Record<number, OperationAnswer>>;
  /** 4xx statuses in addition to those that follow from the declaration. Every endpoint may answer 5xx. */
  errors?: readonly number[];
  /** Everything that only sentences can express. */
  description?: string;
}

/** Tags, in their order. */
export const GROUPS = {
  Responses: "OpenAI's Responses API.",
  Conversations: "OpenAI's Conversations API.",
  Decisions: "OpenAI's Decisions API: answers questions with probabilities.",
  Moderations: "OpenAI's Moderations API: a guard judges texts.",
  Files: "OpenAI's Files and Uploads APIs.",
  Containers: "OpenAI's Containers API: the state of `code_interpreter` from turn to turn.",
  "Vector stores": "OpenAI's Vector stores API: searches files by meaning and by words.",
  Batches: "OpenAI's Batches API: many requests, answered later.",
  Webhooks: "OpenAI's webhook endpoints, and their deliveries.",
  Models: "The models for responses.",
  "Model server":
    "vLLM's own endpoints. A deployment has those that `PASSTHROUGH_ENDPOINTS` names; the others answer 404.",
  Administration:
    "Keys, limits, usage and the audit log. A deployment has them where `ADMIN_KEY` is set; else they answer 404.",
  Operation: "How this server is.",
} as const;
export type Group = keyof typeof GROUPS;

/**
 * Admits everyone; a tenant with its key or token; an administrator who has one of the roles; a tenant or an
 * administrator, who has one of the roles if there are any; or the holder of `PROMETHEUS_TOKEN`. A tenant's requests are counted in its limits; the others are not
 * (docs/keys.md lists them). `src/http/endpoint.ts` enforces both.
 */
export type Admittance =
  | { access: "tenant"; counted: Counted; roles?: undefined }
  | { access: "tenant or root"; counted: Counted; roles?: readonly Role[] }
  | { access: "root"; roles: readonly Role[]; counted?: undefined }
  | { access: "everyone" | "metrics"; counted?: undefined; roles?: undefined };
export type Access = Admittance["access"];

/**
 * The limit that a request counts in: a `request` in `requests_per_minute`, a `read` in `reads_per_minute`. The
 * admission counts a `turn`, together with the tokens that it reserves.
 */
export type Counted = "turn" | "request" | "read";

export interface OperationBody {
  name: BodyName;
  type: "application/json" | "application/jsonl" | "multipart/form-data";
  /** The name of the body of JSON that may be sent instead of a form. */
  orJson?: BodyName;
  /** True if the body may be absent. */
  isOptional?: boolean;
}

export interface OperationHeader {
  name: string;
  description: string;
}

export type MediaType =
  | "application/json"
  | "application/jsonl"
  | "text/event-stream"
  | "text/plain"
  | "application/octet-stream";

export type OperationAnswer = Partial<Record<MediaType, AnswerName>>;

/** An answer of JSON. */
export function ok(name: AnswerName): Operation["answers"] {
  return { 200: { "application/json": name } };
}

/** A body of JSON. */
export function json(name: BodyName): OperationBody {
  return { name, type: "application/json" };
}

type Details = Omit<Description, "id" | "group">;

/** Makes a function that declares tenants' operations of one group. */
export function byTenantIn(group: Group): (id: string, counted: Counted, details: Details) => Operation {
  return (id, counted, details) => ({ id, group, access: "tenant", counted, ...details });
}

/** Declares an operation of administrators with one of these roles. */
export function byRoot(roles: readonly Role[], id: string, details: Details): Operation {
  return { id, group: "Administration", access: "root", roles, ...details };
}
