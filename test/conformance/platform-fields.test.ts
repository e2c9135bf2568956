import { passedImageFault } from "@responses-edge/hosted-tools/image-generation";
import { requestFields as createFields, vllmFields } from "@responses-edge/responses-api/create-fields";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import { moderationRequest } from "@responses-edge/responses-api/moderations";
import { requestBatchBody } from "@responses-edge/responses-api/platform/batches";
import { createContainerBody } from "@responses-edge/responses-api/platform/containers";
import { decisionQuestions, decisionRequest } from "@responses-edge/responses-api/platform/decisions";
import { completeUploadBody, createUploadBody, fileFields } from "@responses-edge/responses-api/platform/files";
import {
  addStoreFileBody,
  createBatchBody,
  createStoreBody,
  searchBody,
  updateStoreBody,
  updateStoreFileBody,
} from "@responses-edge/responses-api/platform/vector-stores";
import {
  createEndpointBody,
  rotateSecretBody,
  testEndpointBody,
  updateEndpointBody,
} from "@responses-edge/responses-api/platform/webhooks";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { expect, it } from "vitest";
import type { z } from "zod";
import { type RequestField, requestFields } from "./request-fields.ts";
import type { JsonObject } from "./violations.ts";

/**
 * The bodies of files, uploads, vector stores, batches, webhooks, moderations, decisions and images: no field of the
 * `openai` package's types is dropped, and each may be null where its type says so. (Those of responses and
 * conversations: `e2e/request-fields.test.ts`.)
 */

type Read = (body: JsonObject) => unknown;

const by =
  (schema: z.ZodType): Read =>
  (body) =>
    parse(schema, body);

/** Images are passed on, but for fields that a server of images does not get. */
function passed(body: JsonObject): unknown {
  const fields = Object.entries(body).map(([name, value]) => [name, value, false] as const);
  const fault = passedImageFault(fields, () => false);
  if (fault) throw invalidRequest(fault.field, fault.message);
  return body;
}

/** A batch has either ids or files. */
function ofBatch(body: JsonObject): unknown {
  const { file_ids: ids, files } = body;
  if (ids != null || files != null) return parse(createBatchBody, body);
  const other = "file_ids" in body ? { files: [{ file_id: "file-x" }] } : { file_ids: ["file-z"] };
  return parse(createBatchBody, { ...body, ...other });
}

const READ: Record<string, Read> = {
  file: by(fileFields),
  container: by(createContainerBody),
  upload: by(createUploadBody),
  upload_complete: by(completeUploadBody),
  vector_store: by(createStoreBody),
  vector_store_update: by(updateStoreBody),
  vector_store_search: by(searchBody),
  store_file: by(addStoreFileBody),
  store_file_update: by(updateStoreFileBody),
  store_batch: ofBatch,
  batch: by(requestBatchBody),
  webhook: by(createEndpointBody),
  webhook_update: by(updateEndpointBody),
  webhook_rotate: by(rotateSecretBody),
  webhook_test: by(testEndpointBody),
  moderation: by(moderationRequest),
  decision: (body) => [parse(decisionRequest, body), parse(decisionQuestions, body)],
  image: passed,
};

const IMAGE = "data:image/png;base64,iVBORw0KGgo=";
const FILE = { file_data: "data:text/plain;base64,SGVsbG8=" };

const SAMPLES = {
  "file.expires_after": [{ anchor: "created_at", seconds: 3600 }],
  ttl: ["12h"],
  seconds: [3600],
  days: [1],
  md5: ["0".repeat(32)],
  url: ["https://example.com/hook"],
  event_types: [["response.completed"]],
  event_type: ["response.completed", "batch.completed"],
  attributes: [{ a: "b" }, {}],
  endpoint: ["/v1/responses"],
  max_chunk_size_tokens: [800],
  chunk_overlap_tokens: [100],
  "store_batch.file_ids": [["file-x"], ["file-y"]],
  "questions<choice>.choices": [
    [{ value: "a" }, { value: "b" }],
    [{ value: "a" }, { value: "c" }],
  ],
  "questions<choice>": [{ choices: [{ value: "a" }, { value: "b" }] }],
  "questions<score>": [{ levels: [{ label: "low" }, { label: "high" }] }],
  "content<input_image>": [{ image_url: IMAGE }],
  "output<input_image>": [{ image_url: IMAGE }],
  "content<input_file>": [FILE],
  "output<input_file>": [FILE],
};

interface Outcome {
  data?: string;
  /** The path of the field that is refused, and why. */
  refused?: { param: string; message: string };
}

function outcome(read: Read, body: JsonObject): Outcome {
  try {
    return { data: JSON.stringify(read(body)) };
  } catch (error) {
    const { param, message } = error as { param: string | null; message: string };
    return { refused: { param: (param ?? "").replace(/\.type$/, ""), message } };
  }
}

/** Tells whether a refusal names a field, or what is in it; or (`around`) what contains it. */
function names({ refused }: Outcome, { path }: RequestField): "it" | "around" | "another" {
  const { param = "" } = refused ?? {};
  const name = path.reduce<string>((text, key) => (typeof key === "number" ? `${text}[${key}]` : `${text}.${key}`), "");
  const isIn = (inner: string, outer: string) => inner === outer || /^[.[]/.test(inner.slice(outer.length));
  if (`.${param}`.startsWith(name) && isIn(`.${param}`, name)) return "it";
  return name.startsWith(`.${param}`) && isIn(name, `.${param}`) ? "around" : "another";
}

function faultsOf(field: RequestField): string[] {
  const { name, body, without, with: bodies, nulled } = field;
  const read = READ[body];
  if (!read) return [`There is no body '${body}'.`];
  const isKind = name.endsWith(">");
  const plain = isKind ? {} : outcome(read, without);
  // An object that is refused as a whole.
  if (plain.refused && names(plain, field) === "around") return [];
  if (plain.refused) return [`${name}, without it: ${plain.refused.param}: ${plain.refused.message}`];
  const found = (nulled ? [nulled] : bodies.map((each) => each.body)).map((each) => outcome(read, each));
  // All kinds of one are refused with it.
  const isUnserved = (each: Outcome) =>
    names(each, field) === "around" && / is not supported by this server/.test(each.refused?.message ?? "");
  if (found.every(isUnserved)) return [];
  const wrong = found.filter((each) => each.refused && (nulled || names(each, field) !== "it"));
  const isRead = nulled !== undefined || found.some(({ refused, data }) => refused || data !== plain.data);
  return [...wrong.map(({ refused }) => `${name}: ${refused?.message}`), ...(isRead ? [] : [`${name} is dropped`])];
}

const { fields, nullable } = requestFields(SAMPLES, "platform");
/** Chat completions are not answered here, and the items of decisions are those of creates. */
const isOwn = ({ body, within }: RequestField) => body !== "chat" && !within.includes("decision.input");

it("no field is dropped", () => {
  const own = fields.filter(isOwn);
  expect(new Set(own.map(({ body }) => body))).toEqual(new Set(Object.keys(READ)));
  expect(own.flatMap(faultsOf)).toEqual([]);
});

it("each field that may be null may be it", () => {
  expect(nullable.filter(isOwn).flatMap(faultsOf)).toEqual([]);
  expect(nullable.length).toBeGreaterThan(10);
});

it("each field of chat completions has its meaning in a create, or is refused by its name there", () => {
  const served = new Set([...Object.keys(vllmFields), ...SAME_IN_BOTH]);
  const names = new Set(fields.filter(({ body, within }) => body === "chat" && within.length === 0).map(topOf));
  const dropped = [...names].filter((name) => {
    if (served.has(name)) return false;
    const { error } = createFields.safeParse({ input: "x", [name]: { not: "null" } });
    return !error?.issues.some(({ path, message }) => path[0] === name && message.startsWith("Unsupported parameter"));
  });
  expect(dropped).toEqual([]);
  expect(names.size).toBeGreaterThan(20);
});

/** Fields that the Responses API has under the same names. */
const SAME_IN_BOTH = [
  ...["metadata", "model", "moderation", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_options"],
  ...["prompt_cache_retention", "safety_identifier", "service_tier", "store", "stream", "stream_options"],
  ...["temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user"],
];

function topOf({ path }: RequestField): string {
  return String(path[0]);
}
