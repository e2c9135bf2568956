import { readFileSync } from "node:fs";
import { askedFields } from "@responses-edge/responses-api/asked-fields";
import { EXIT, Refusal } from "../serve/refusal.ts";

/**
 * `replay FILE --against URL`: sends the requests of an exported response again, one after another, and compares the outputs item by
 * item. The outputs of the client's tools are those of the file.
 */

interface Item {
  type: string;
  id?: string;
  call_id?: string | null;
  [field: string]: unknown;
}

/** A line of the file with a response. */
interface Recorded extends Record<string, unknown> {
  id: string;
  status: string;
  previous_response_id: string | null;
  conversation: { id: string } | null;
  input: Item[];
  output: Item[];
}

export interface ReplayRequest {
  file: string;
  /** The URL of a server, ending in /v1. */
  against: string;
  /** The key of a tenant there, if it wants one. */
  key: string | undefined;
}

/** The comparison of one response. No differences: the outputs are equal. */
export interface ReplayedResponse {
  recorded: string;
  /** The id of the new response; undefined if its request was refused. */
  id: string | undefined;
  differences: string[];
}

/** Prints the comparison of each response. Throws a Refusal with exit code 1 if any of them differs, and 65 for a file that is no export. */
export async function replayRun(request: ReplayRequest, print = console.log): Promise<void> {
  let different = 0;
  let count = 0;
  for await (const { recorded, id, differences } of replayedResponses(request)) {
    count += 1;
    if (differences.length > 0) different += 1;
    print(`${differences.length > 0 ? "differs" : "equal  "} ${recorded} ${id ?? ""}`.trimEnd());
    for (const difference of differences) print(`  ${difference}`);
  }
  print(`${count - different} of ${count} responses are equal.`);
  if (different > 0) throw new Refusal(EXIT.failed, `${different} of ${count} responses differ.`);
}

/** Sends the requests of a file, oldest first, and compares each answer. */
export async function* replayedResponses(request: ReplayRequest): AsyncGenerator<ReplayedResponse> {
  const server = new Server(request);
  /** The new ids of responses and of calls, by those of the file. */
  const responses = new Map<string, string>();
  const calls = new Map<string, string>();
  let conversation: string | undefined;
  for (const line of readLines(request.file)) {
    if (line.object === "conversation.items") {
      conversation ??= await server.newConversation();
      await server.addItems(conversation, withNewCalls(line.input as Item[], calls));
    }
    if (line.object !== "response") continue;
    const recorded = line as unknown as Recorded;
    const { previous_response_id: previous, input, output } = recorded;
    if (recorded.conversation) conversation ??= await server.newConversation();
    const continued = previous === null ? undefined : responses.get(previous);
    if (previous !== null && continued === undefined) {
      yield { recorded: recorded.id, id: undefined, differences: [`It continues ${previous}, which is not there.`] };
      continue;
    }
    const answer = await server.create({
      ...askedFields(recorded as never),
      input: withNewCalls(input, calls),
      store: true,
      ...(continued !== undefined && { previous_response_id: continued }),
      ...(recorded.conversation && { conversation }),
    });
    if ("refusal" in answer) {
      yield { recorded: recorded.id, id: undefined, differences: [`The request is refused: ${answer.refusal}`] };
      continue;
    }
    responses.set(recorded.id, answer.id);
    for (const [index, item] of callsIn(output).entries()) {
      const made = callsIn(answer.output)[index];
      if (item.call_id && made?.call_id) calls.set(item.call_id, made.call_id);
    }
    yield { recorded: recorded.id, id: answer.id, differences: differencesOf(recorded, answer) };
  }
}

/** The lines of a file. Throws the Refusal of one that is not a whole export. */
function readLines(file: string): Record<string, unknown>[] {
  let lines: Record<string, unknown>[];
  try {
    const text = readFileSync(file, "utf8");
    lines = text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as Record<string, unknown>]));
  } catch (error) {
    throw new Refusal(EXIT.damaged, `${file} cannot be read as JSON lines: ${String(error)}`);
  }
  if (lines.at(-1)?.object === "export.page") return lines;
  throw new Refusal(EXIT.damaged, `${file} is incomplete: its last line is not an 'export.page'.`);
}

function callsIn(items: readonly Item[]): Item[] {
  return items.filter(({ type, call_id: id }) => id != null && type.endsWith("_call"));
}

/** An input as a request has it: without ids, with the outputs of the calls that the model has made now. */
function withNewCalls(items: readonly Item[], calls: ReadonlyMap<string, string>): Item[] {
  return items.map(({ id: _id, ...item }) => ({
    ...item,
    ...(item.call_id != null && { call_id: calls.get(item.call_id) ?? item.call_id }),
  })) as Item[];
}

/** Fields of items that no two runs have in common. */
const OWN_FIELDS = new Set(["id", "call_id", "encrypted_content", "container_id", "approval_request_id"]);

/** The differences of two responses, one for each item, in words. */
function differencesOf(before: Recorded, now: Recorded): string[] {
  const differences: string[] = [];
  if (before.status !== now.status) differences.push(`status: ${before.status} before, ${now.status} now`);
  for (let index = 0; index < Math.max(before.output.length, now.output.length); index += 1) {
    const [then, here] = [shownItem(before.output[index]), shownItem(now.output[index])];
    if (then !== here) differences.push(`output[${index}]:\n    - ${then}\n    + ${here}`);
  }
  return differences;
}

function shownItem(item: Item | undefined): string {
  if (!item) return "(none)";
  return JSON.stringify(item, (field, value: unknown) => (OWN_FIELDS.has(field) ? undefined : value));
}

/** The server that answers now. */
class Server {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  constructor({ against, key }: ReplayRequest) {
    if (!URL.canParse(against))
      throw new Refusal(EXIT.usage, `--against needs a URL, such as http://127.0.0.1:8787/v1.`);
    this.#url = against.replace(/\/+$/, "");
    this.#headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
  }

  async create(body: object): Promise<Recorded | { refusal: string }> {
    const { answer, value } = await this.#post("/responses", body);
    return answer.ok ? (value as Recorded) : { refusal: messageIn(value) };
  }

  async newConversation(): Promise<string> {
    const { answer, value } = await this.#post("/conversations", {});
    if (!answer.ok) throw new Refusal(EXIT.failed, `No conversation could be made: ${messageIn(value)}`);
    return (value as { id: string }).id;
  }

  async addItems(conversation: string, items: Item[]): Promise<void> {
    if (items.length > 0) await this.#post(`/conversations/${conversation}/items`, { items });
  }

  async #post(path: string, body: object): Promise<{ answer: Response; value: unknown }> {
    const init = { method: "POST", headers: this.#headers, body: JSON.stringify(body) };
    const answer = await fetch(`${this.#url}${path}`, init).catch((error: unknown) => {
      throw new Refusal(EXIT.address, `${this.#url} does not answer: ${String(error)}`);
    });
    return { answer, value: await answer.json().catch(() => undefined) };
  }
}

function messageIn(value: unknown): string {
  const { error } = (value ?? {}) as { error?: { message?: string } };
  return error?.message ?? JSON.stringify(value);
}
