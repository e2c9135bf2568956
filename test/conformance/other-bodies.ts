/** The bodies that are neither a Response nor a stream: lists, deletions, errors, and the smaller objects. */
import { memberViolations, type Root, shapeViolations } from "./schemas.ts";
import { isObject, show } from "./violations.ts";

const DEFAULT_LIMIT = 20;
const STACK_TRACE = /\bat .*\(.*:\d+:\d+\)/;

/** Objects of which only the shape is checked. */
const BY_OBJECT: Record<string, Root> = {
  "response.compaction": "CompactedResponse",
  "response.input_tokens": "InputTokenCountResponse",
  conversation: "Conversation",
  "conversation.deleted": "ConversationDeletedResource",
};

/**
 * Check 37 (38 for conversations): a page of items has its five keys, and its ids and limits are coherent.
 *
 * @param url the request's, for `limit` and `after`
 * @returns the violations
 */
export function listViolations(body: unknown, url: URL): string[] {
  const conversation = url.pathname.includes("/conversations/");
  // The nodes of a tree, and the list of responses, have no items: OpenAI has neither.
  const isOurs = url.pathname.endsWith("/tree") || url.pathname.endsWith("/responses");
  const shape = isOurs ? [] : shapeViolations(conversation ? "ConversationItemList" : "ResponseItemList", body);
  if (shape.length > 0 || !isObject(body) || !Array.isArray(body.data)) {
    return shape.map((message) => `#37 list schema: ${message}`);
  }
  const violations: string[] = [];
  const report = (message: string): void => void violations.push(`#37 list: ${message}`);
  const ids: unknown[] = body.data.map((item: unknown) => (isObject(item) ? item.id : undefined));
  for (const [index, item] of body.data.entries()) {
    const root = conversation ? "ConversationItem" : "ResponseItem";
    for (const message of isOurs ? [] : memberViolations(root, item)) report(`data[${index}] ${message}`);
    const id = ids[index];
    if (typeof id !== "string" || id === "") report(`data[${index}] has no id`);
    else if (ids.indexOf(id) < index) report(`data[${index}] has the id ${id} of another item`);
  }
  const empty = ids.length === 0;
  if (body.first_id !== (ids[0] ?? null)) report(`first_id is ${show(body.first_id)}, not ${show(ids[0])}`);
  if (body.last_id !== (ids.at(-1) ?? null)) report(`last_id is ${show(body.last_id)}, not ${show(ids.at(-1))}`);
  if (empty && body.has_more === true) report("an empty page has more");
  const limit = Number(url.searchParams.get("limit") ?? DEFAULT_LIMIT);
  if (ids.length > limit) report(`the page has ${ids.length} items, the limit is ${limit}`);
  const after = url.searchParams.get("after");
  if (after !== null && ids.includes(after)) report(`the page contains ${after}, after which it begins`);
  return violations;
}

/**
 * §1.1: DELETE of a response answers exactly `{id, object, deleted: true}`.
 *
 * @returns the violations
 */
export function deletionViolations(body: Record<string, unknown>, url: URL): string[] {
  const violations: string[] = [];
  if (Object.keys(body).sort().join() !== "deleted,id,object") violations.push(`has keys ${Object.keys(body).join()}`);
  if (body.deleted !== true) violations.push(`deleted is ${show(body.deleted)}`);
  if (body.object !== "response" && body.object !== "response.deleted")
    violations.push(`object is ${show(body.object)}`);
  if (typeof body.id !== "string" || !url.pathname.endsWith(`/${body.id}`)) violations.push(`id is ${show(body.id)}`);
  return violations.map((message) => `#33 deletion: ${message}`);
}

/** The shape of a body by its `object`; undefined when the object is unknown. */
export function objectViolations(body: Record<string, unknown>): string[] | undefined {
  // OpenAI has neither. The description of the API has both.
  if (body.object === "response.prompt" || body.object === "response.details") return [];
  const root = typeof body.object === "string" ? BY_OBJECT[body.object] : undefined;
  if (!root) return undefined;
  const items = root === "CompactedResponse" && Array.isArray(body.output) ? body.output : [];
  const ofItems = items.flatMap((item: unknown, index) =>
    memberViolations("ResponseItem", item).map((message) => `output[${index}] ${message}`),
  );
  return [...shapeViolations(root, body), ...ofItems].map((message) => `#39 ${root} schema: ${message}`);
}

/**
 * Checks 32 and 41: an HTTP error is exactly `{error: {message, type, param, code}}`, and reveals nothing internal.
 *
 * @param contentType the answer's `content-type`
 * @returns the violations
 */
export function errorBodyViolations(text: string, contentType: string | null): string[] {
  const violations: string[] = [];
  const report = (message: string): void => void violations.push(`#41 error body: ${message}`);
  if (!isJsonType(contentType)) report(`content-type is ${contentType}`);
  if (STACK_TRACE.test(text)) report(`contains a stack trace: ${show(text)}`);
  const body = parseJson(text);
  if (!isObject(body) || Object.keys(body).join() !== "error" || !isObject(body.error)) {
    report(`is not {error: {...}}: ${show(body ?? text)}`);
    return violations;
  }
  const { message, type, param, code } = body.error;
  const keys = Object.keys(body.error).sort().join();
  if (keys !== "code,message,param,type") report(`has keys ${keys}`);
  if (typeof message !== "string" || message.trim() === "") report(`message is ${show(message)}`);
  if (typeof type !== "string" || type === "") report(`type is ${show(type)}`);
  if (param !== null && typeof param !== "string") report(`param is ${show(param)}`);
  if (code !== null && typeof code !== "string") report(`code is ${show(code)}`);
  return violations;
}

export function isJsonType(contentType: string | null): boolean {
  return /^application\/json\s*(;|$)/i.test(contentType ?? "");
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
