import type { LongWork } from "@responses-edge/long-work";
import type { z } from "zod";
import { bringsTools, type InputItem } from "../items/registry.ts";
import { type CreateRequest, conversationOf, readInputAhead, toItems } from "./create-request.ts";
import { invalidRequest } from "./errors.ts";
import { isJsonObject, type JsonObject } from "./json.ts";
import { isServedType } from "./tools.ts";
import { parse } from "./validation.ts";

/** Reads the body of a create, once: whoever goes on has its request and its input. */

/** How a body is read. */
export interface BodyReading {
  /** Checks the body, and makes a create of it. */
  schema: z.ZodType<CreateRequest>;
  /** Whether tools of a type that this server does not have are left out (`UNKNOWN_TOOLS`). Else they are refused. */
  dropsUnknownTools: boolean;
  /** Fields that go to vLLM as they are (`VLLM_EXTRA_FIELDS`). */
  vllmExtraFields: readonly string[];
}

export interface CreateBody {
  request: CreateRequest;
  /** The request's own input, references not resolved. */
  input: InputItem[];
  /** The id of the conversation that the request names. */
  conversation: string | undefined;
  /** Types of the tools that were left out, each once. */
  dropped: readonly string[];
}

/** Throws the 400s of a body that is no create. A long one is read slice by slice, as `work`. */
export async function readCreateBody(sent: unknown, reading: BodyReading, work: LongWork): Promise<CreateBody> {
  const dropped = reading.dropsUnknownTools ? unknownToolTypes(sent) : [];
  const body = dropped.length > 0 && isJsonObject(sent) ? withoutUnknownTools(sent) : sent;
  await work.run(readInputAhead(body));
  const request = withExtraFields(parse(reading.schema, body), body, reading.vllmExtraFields);
  return { request, input: toItems(request.input), conversation: conversationOf(request), dropped };
}

/** Types of the body's tools that are not served, each once. */
function unknownToolTypes(body: unknown): string[] {
  const types = new Set<string>();
  for (const tools of toolLists(body)) for (const tool of tools) if (isUnknown(tool)) types.add(tool.type);
  return [...types];
}

/** The body without them. */
function withoutUnknownTools(body: JsonObject): JsonObject {
  const { tools, input } = body;
  const known = (list: readonly unknown[]) => list.filter((tool) => !isUnknown(tool));
  return {
    ...body,
    ...(Array.isArray(tools) && { tools: known(tools) }),
    ...(Array.isArray(input) && {
      input: input.map((item: unknown) => (hasTools(item) ? { ...item, tools: known(item.tools) } : item)),
    }),
  };
}

function* toolLists(body: unknown): Generator<unknown[]> {
  if (!isJsonObject(body)) return;
  if (Array.isArray(body.tools)) yield body.tools;
  if (Array.isArray(body.input)) for (const item of body.input) if (hasTools(item)) yield item.tools;
}

function hasTools(item: unknown): item is JsonObject & { tools: unknown[] } {
  return isJsonObject(item) && bringsTools({ type: item.type }) && Array.isArray(item.tools);
}

/** Whether a value is a tool by its looks, but of no type that is known here. */
function isUnknown(tool: unknown): tool is { type: string } {
  return isJsonObject(tool) && typeof tool.type === "string" && !isServedType(tool.type);
}

/** Values, and characters of names and texts, in all extra fields of a request; and how deep they may lie. */
const MAX_SIZE = 65_536;
const MAX_DEPTH = 32;

/**
 * The request with the fields of its body that the operator lets through to vLLM, as they are. Throws the 400 of those that are too
 * large or too deep, before all of them has been looked at.
 */
function withExtraFields(request: CreateRequest, body: unknown, names: readonly string[]): CreateRequest {
  if (names.length === 0 || typeof body !== "object" || body === null) return request;
  const fields = names
    .filter((name) => Object.hasOwn(body, name))
    .map((name) => [name, Reflect.get(body, name)] as const);
  const kept = fields.filter(([, value]) => value !== null);
  if (kept.length === 0) return request;
  let left = MAX_SIZE;
  for (const [name, value] of kept) left = measured(name, value, left);
  return { ...request, vllm_fields: Object.fromEntries(kept) };
}

/** Subtracts the size of a field's value from `size`. Throws the 400 of a value that is larger, or too deep. */
function measured(name: string, whole: unknown, size: number): number {
  let left = size;
  const open: { value: unknown; depth: number }[] = [{ value: whole, depth: 0 }];
  for (let next = open.pop(); next; next = open.pop()) {
    const { value, depth } = next;
    left -= typeof value === "string" ? value.length + 1 : 1;
    if (typeof value === "object" && value !== null) {
      for (const key in value) {
        left -= Array.isArray(value) ? 0 : key.length;
        open.push({ value: Reflect.get(value, key), depth: depth + 1 });
        if (open.length > left) break;
      }
    }
    if (depth > MAX_DEPTH || left < open.length) {
      throw invalidRequest(name, `Expected at most ${MAX_SIZE} characters and values, ${MAX_DEPTH} levels deep.`);
    }
  }
  return left;
}
