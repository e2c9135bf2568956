import type { CreateRequest } from "./create-request.ts";
import { invalidRequest } from "./errors.ts";

/** Values, and characters of names and texts, in all extra fields of a request; and how deep they may lie. */
const MAX_SIZE = 65_536;
const MAX_DEPTH = 32;

/**
 * A request with the fields of its body that the operator lets through to vLLM (`VLLM_EXTRA_FIELDS`), as they are.
 * Throws the 400 of those that are too large or too deep, before all of them has been looked at.
 */
export function withExtraFields(request: CreateRequest, body: unknown, names: readonly string[]): CreateRequest {
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

/** What a field's value leaves of a size. */
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
