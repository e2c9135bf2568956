import { abortAllDurableObjects, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { loadTokenizer } from "@responses-edge/engines/harmony/load-tokenizer";
import { cutAtLiterals, type Tokenizer, toTokenIds } from "@responses-edge/harmony";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { newTurnAddress, type TurnAddress } from "@responses-edge/responses-api/ids";
import { shownItems } from "@responses-edge/responses-api/items/reasoning";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { McpAccess } from "@responses-edge/responses-api/tools";
import type { EngineName, Replay } from "@responses-edge/turn/contract/engine";
import { responseBody } from "@responses-edge/turn/response";
import { createSealer } from "@responses-edge/turn/sealed-content/sealer";
import type { Response as ResponseBody, ResponseStreamEvent } from "openai/resources/responses/responses";
import { afterEach, beforeAll, beforeEach, expect, vi } from "vitest";
import { loadConfig } from "../../src/config/index.ts";
import type { Home } from "../../src/store/home/home.ts";
import type { RunSpec } from "../../src/store/home/run-store.ts";
import { fromCell, type StoredCell } from "../../src/store/objects/row-pieces.ts";

/**
 * Background runs in real homes, whose process a test kills. The model server is a mock of `fetch`: the test decides
 * the text and the time of each generation's tokens.
 *
 * Test files share an isolate, and so this module. Hooks are registered by `useModelServer` and `useTokenizer`, which a
 * file calls at its top.
 */

// Waiting

export const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** The first value of `condition` that is truthy. Throws an error with `message` when there is none in two minutes. */
export async function eventually<T>(condition: () => T | Promise<T>, message: string): Promise<NonNullable<T>> {
  return vi.waitFor(
    async () => {
      const value = await condition();
      if (!value) throw new Error(message);
      return value;
    },
    { timeout: 120_000, interval: 50 },
  );
}

/** Kills the processes of all homes. Unwritten data is lost. */
export const crash = () => abortAllDurableObjects();

// Tokens of gpt-oss

let tokenizer: Tokenizer;

/** Loads the tokenizer before the tests of the calling file, for `idsOf`, `decode` and `TokenChunks`. */
export function useTokenizer(): void {
  beforeAll(async () => {
    tokenizer = await loadTokenizer();
  });
}

/** A text with the literals of special tokens, as token ids. */
export const idsOf = (text: string): number[] => toTokenIds(cutAtLiterals(text), tokenizer);

export const decode = (ids: readonly number[]): string => tokenizer.decode(ids);

/** `<|return|>` and `<|call|>`: vLLM stops after them. */
const STOPS = new Set([200002, 200012]);

/** Turns token ids into the chunks of a `/v1/completions` stream, one chunk per token. */
export class TokenChunks {
  /** Ids whose bytes do not end with a character yet. */
  #pending: number[] = [];

  /** The next chunks of the stream. `finish` is the finish reason of the last one, unless it is a stop token's. */
  of(ids: readonly number[], finish: "stop" | "length" | null = null): object[] {
    return ids.map((id, index) => {
      const finishReason = STOPS.has(id) ? "stop" : index === ids.length - 1 ? finish : null;
      this.#pending.push(id);
      const decoded = tokenizer.decode(this.#pending);
      // A token that ends within a character has no text yet. One that stops the generation has no text at all.
      const text = decoded.endsWith("\ufffd") || finishReason === "stop" ? "" : decoded;
      if (text !== "") this.#pending = [];
      return { choices: [{ index: 0, text, token_ids: [id], finish_reason: finishReason }] };
    });
  }
}

// The model server

/** A generation that a home has requested. The test decides its output. */
export abstract class Generation {
  /** True if the home has closed its request. */
  aborted = false;
  readonly #chunks: (object | "cut" | "end")[] = [];
  #isAwaited = false;
  #completionTokens = 0;

  /** The response to the home's request. */
  get answer(): Response {
    // The home pulls the stream, because a stream must not go from one object's life into another's.
    const body = new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          for (;;) {
            if (this.aborted) return controller.error(new Error("Aborted."));
            const chunk = this.#chunks.shift();
            if (chunk === "end") return controller.close();
            if (chunk === "cut") return controller.error(new Error("Connection reset."));
            this.#isAwaited = chunk === undefined;
            if (chunk) return controller.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(chunk)}\n\n`));
            // A test has up to a hundred of these at once, so checks must be rare.
            await pause(20);
          }
        },
        cancel: () => this.abort(),
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  }

  abort(): void {
    this.aborted = true;
  }

  /** True if the home has read all output so far, and waits for more. */
  get read(): boolean {
    return this.#chunks.length === 0 && this.#isAwaited;
  }

  /** Tokens of the prompt, for the usage. */
  protected abstract get promptTokens(): number;

  /** Sends chunks of the stream, which are `tokens` tokens for the usage. */
  protected send(chunks: readonly object[], tokens: number): void {
    this.#chunks.push(...chunks);
    this.#completionTokens += tokens;
  }

  /** Breaks the connection. */
  cut(): void {
    this.#chunks.push("cut");
  }

  /** Sends the usage. Then the stream ends, or with `cut` the connection breaks. */
  protected end(how: "end" | "cut" = "end"): void {
    const [prompt_tokens, completion_tokens] = [this.promptTokens, this.#completionTokens];
    const usage = { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens };
    this.#chunks.push({ choices: [], usage }, how);
  }
}

export interface ChatMessage {
  role: string;
  content?: string;
  reasoning?: string;
}

/** The tokens of a chat model's prompt: one per word. */
export function wordsIn(messages: readonly ChatMessage[]): number {
  return messages
    .flatMap(({ content, reasoning }) => [content, reasoning])
    .flatMap((text) => String(text ?? "").match(/\S+/g) ?? []).length;
}

export interface ModelServerOptions<G extends Generation> {
  /** The generation of a request with this body to this path. */
  newGeneration(body: string, path: string): G;
  /** The text of a generation's prompt. Its last `#word` is the name of a `NamedRun`. */
  promptText?(generation: G): string;
  /** Answers requests that are not for the model server; undefined for those that are. */
  otherServer?(url: URL, init: RequestInit | undefined): Promise<Response> | undefined;
}

export interface ModelServer<G extends Generation> {
  /** All generations of the current test, in the order of their requests. */
  readonly generations: G[];
  /** The generations of a named run. */
  generationsOf(runName: string): readonly G[];
}

let tests = 0;

/** Distinguishes the runs of the current test from earlier ones, which alarms may wake later. */
const saltOfTest = () => `test${tests}`;

/** Mocks `fetch` in every test of the calling file. After each test all homes are aborted. */
export function useModelServer<G extends Generation>(options: ModelServerOptions<G>): ModelServer<G> {
  const generations: G[] = [];
  const byRun = new Map<string, G[]>();

  beforeEach(() => {
    tests += 1;
    generations.length = 0;
    byRun.clear();
    vi.spyOn(globalThis, "fetch").mockImplementation(async (input, init) => {
      const url = new URL(String(input));
      const other = options.otherServer?.(url, init);
      if (other) return other;
      const body = String(init?.body);
      if (url.pathname.endsWith("/tokenize")) {
        const { messages } = JSON.parse(body) as { messages: ChatMessage[] };
        return Response.json({ count: wordsIn(messages), max_model_len: 100_000 });
      }
      if (!url.pathname.endsWith("/completions")) return new Response(null, { status: 404 });
      const signal = init?.signal;
      if (signal?.aborted) throw signal.reason;
      const { cache_salt: salt } = JSON.parse(body) as { cache_salt?: string };
      if (salt !== saltOfTest()) return new Response(null, { status: 500 });
      const generation = options.newGeneration(body, url.pathname);
      generations.push(generation);
      const name = /#(\w+)(?!.*#\w)/s.exec(options.promptText?.(generation) ?? "")?.[1];
      if (name !== undefined) byRun.set(name, [...(byRun.get(name) ?? []), generation]);
      signal?.addEventListener("abort", () => generation.abort());
      return generation.answer;
    });
  });
  afterEach(async () => {
    await abortAllDurableObjects();
    openStreams.length = 0;
    vi.restoreAllMocks();
  });

  return { generations, generationsOf: (runName) => byRun.get(runName) ?? [] };
}

// Runs

/** Streams of `Run.read`: a stream that nothing refers to may be closed. */
const openStreams: Response[] = [];

export interface RunOptions {
  /** Fields of the request besides `model` and `background`. */
  request?: Partial<CreateRequest>;
  /** The user's message, or items. */
  input: string | Item[];
  engine: EngineName;
  address?: TurnAddress;
  /** The turn that this one continues. */
  parent?: string;
  /** Labels of MCP servers whose credentials are not kept. */
  withheld?: string[];
  /** MCP servers by label. */
  access?: Record<string, McpAccess>;
  /** The tenant of the run, whose reasoning is sealed. */
  tenant?: string;
  /** True if the homes hide reasoning from clients. */
  isHidden?: boolean;
}

/** A background run, and the home that it lives in. After a crash the home is another object. */
export class Run {
  readonly address: TurnAddress;
  readonly spec: RunSpec;
  readonly #access: Record<string, McpAccess>;
  readonly #isHidden: boolean;

  constructor({
    request,
    input,
    engine,
    address = newTurnAddress(),
    parent,
    withheld,
    access = {},
    tenant,
    isHidden = false,
  }: RunOptions) {
    this.address = address;
    this.spec = {
      ...address,
      parent: parent ?? null,
      keyId: "key",
      createdAt: Date.now(),
      request: { background: true, model: "m", ...request },
      input: typeof input === "string" ? [userMessage(input)] : input,
      model: { name: "m", upstream: "m", engine },
      cacheSalt: saltOfTest(),
      affinity: { isRooted: true },
      ...(withheld && { withheld }),
      tenant: tenant ?? "",
      inConversation: false,
    };
    this.#access = access;
    this.#isHidden = isHidden;
  }

  get home(): DurableObjectStub<Home> {
    return env.HOME.getByName(`tenant:${this.address.home}`);
  }

  /** Asks the home to start the run, which it may refuse. */
  start() {
    return this.home.startRun(JSON.stringify(this.spec), "ticket", 0, this.#access);
  }

  /** Starts the run, which the home must accept. */
  async begin(): Promise<this> {
    expect(await this.start()).toMatchObject({ ok: true });
    return this;
  }

  async retrieve(): Promise<ResponseBody> {
    const stored = await this.home.retrieve(this.address.turn);
    if (!stored) throw new Error("There is no such response.");
    const output = shownItems(stored.output, { hidden: this.#isHidden, encrypted: true });
    return JSON.parse(responseBody({ ...stored, output })) as ResponseBody;
  }

  /** The response, once it is neither queued nor in progress. */
  async ended(): Promise<ResponseBody> {
    return eventually(async () => {
      const response = await this.retrieve();
      return response.status === "queued" || response.status === "in_progress" ? undefined : response;
    }, "Still running.");
  }

  /** The event stream for a reader who has the event `after`. */
  stream(after = -1, obfuscation: 0 | 1 = 0): Promise<Response> {
    const query = `turn=${this.address.turn}&after=${after}&obfuscation=${obfuscation}`;
    return this.home.fetch(`http://home/events?${query}`);
  }

  /** Opens a stream until the crash. With a reader, pending and new events are written at once. */
  async read(): Promise<void> {
    openStreams.push(await this.stream());
  }

  /**
   * Waits until all writes of the home are on its disk. A real request leaves a home only after that (Cloudflare:
   * output gate), but the mock of `fetch` gets it at once. So a test that kills the home after a request waits for this
   * first.
   */
  written(): Promise<void> {
    return runInDurableObject(this.home, (_, { storage }) => storage.sync());
  }

  /** Executes a statement in the home's database. */
  sql<T extends Record<string, SqlStorageValue>>(statement: string): Promise<T[]> {
    return runInDurableObject(this.home, (_, { storage }) => storage.sql.exec<T>(statement).toArray());
  }

  /** From now on no row of a table can be written or removed. */
  async breakTable(table: string): Promise<void> {
    for (const change of ["INSERT", "DELETE"]) {
      await this.sql(
        `CREATE TRIGGER ${change}_${table} BEFORE ${change} ON ${table} BEGIN SELECT RAISE(ABORT, 'disk full'); END`,
      );
    }
  }

  async mendTable(table: string): Promise<void> {
    for (const change of ["INSERT", "DELETE"]) await this.sql(`DROP TRIGGER ${change}_${table}`);
  }
}

function userMessage(text: string): Item {
  return { id: "msg_1", type: "message", role: "user", status: "completed", content: [{ type: "input_text", text }] };
}

let names = 0;

/** A name for a run. All have three digits, so that all prompts are equally long. */
export const newRunName = () => `run${100 + (names++ % 900)}`;

export interface NamedRunOptions<G extends Generation> extends Omit<RunOptions, "input"> {
  server: ModelServer<G>;
  name?: string;
  /** Items instead of the user's message, which has the name in it. */
  input?: Item[];
}

/** A run whose prompts have its name: a test may have many at once. */
export class NamedRun<G extends Generation> extends Run {
  readonly name: string;
  readonly #server: ModelServer<G>;
  /** Generations of an earlier run with the same name. */
  readonly #before: number;

  constructor({ server, name = newRunName(), input, ...options }: NamedRunOptions<G>) {
    super({ ...options, input: input ?? `Go on. #${name}` });
    this.name = name;
    this.#server = server;
    this.#before = server.generationsOf(name).length;
  }

  /** The generations that it has asked for. */
  get asked(): G[] {
    return this.#server.generationsOf(this.name).slice(this.#before);
  }

  /** The generation of this number, from 1, once it is asked for. */
  generation(number: number): Promise<G> {
    return eventually(() => this.asked[number - 1], `Generation ${number} of ${this.name} was not asked for.`);
  }

  /** Waits until a generation's output is in the log, if it causes events. */
  async logged(number: number): Promise<void> {
    const generation = await this.generation(number);
    await eventually(() => generation.read, "Not read.");
    await this.read();
  }

  /** The bytes of the event stream for a reader who has the event `after`. */
  async replay(after = -1): Promise<string> {
    return (await this.stream(after)).text();
  }

  /** An item with its sealed content, without ids that differ between runs. */
  #unsealed(item: Item): Item {
    if (item.type !== "reasoning" || item.encrypted_content === undefined) return item;
    const { encryptionKeys } = loadConfig(env);
    const opened = createSealer(encryptionKeys, this.spec.tenant ?? "", "m")?.open("reasoning", item.encrypted_content);
    const payload = JSON.stringify(opened, (key, value: unknown) => (key === "call_id" ? "" : value));
    return { ...item, encrypted_content: payload };
  }

  /** The stored data of the turn, without the parts that differ between two equal runs. */
  async kept(): Promise<{ items: Item[]; replays: unknown[] }> {
    const rows = await this.sql<{ output: StoredCell; messages: StoredCell | null }>(
      `SELECT output, messages FROM turns WHERE turn = '${this.address.turn}'`,
    );
    const [row] = rows;
    if (!row || rows.length > 1) throw new Error("One row was expected.");
    const items = (JSON.parse(fromCell(row.output)) as Item[]).map((item) => this.#unsealed(item));
    const indexes = new Map(items.map(({ id }, index) => [id, index]));
    const replays = JSON.parse(fromCell(row.messages ?? "[]")) as Replay[];
    const json = JSON.stringify({
      items: items.map((item) => ({ ...item, id: "", ...("call_id" in item && { call_id: "" }) })),
      replays: replays.map((replay) => ({ ...replay, item: indexes.get(replay.item) })),
    });
    const plain = json.replaceAll(this.address.turn, "TURN").replaceAll(this.address.home, "HOME");
    return JSON.parse(plain.replaceAll(this.name, "NAME")) as { items: Item[]; replays: unknown[] };
  }
}

// Rules of every log

/** A function of the client. */
export const f = { type: "function" as const, name: "f", description: null, parameters: null, strict: null };

/** All deltas of an output item, as one text. */
export function deltasOf(events: readonly ResponseStreamEvent[], outputIndex: number): string {
  return events
    .map((event) =>
      "delta" in event && "output_index" in event && event.output_index === outputIndex ? event.delta : "",
    )
    .join("");
}

function summaryOf(item: ResponseBody["output"][number]) {
  return item.type === "reasoning" ? item.summary : [];
}

/** The text of a message or of reasoning. */
export function textOf(item: ResponseBody["output"][number]): string {
  const parts = item.type === "message" || item.type === "reasoning" ? (item.content ?? summaryOf(item)) : [];
  return parts.map((part) => ("text" in part ? part.text : "")).join("");
}

/** Asserts the rules of every whole log of an ended response, after any events. */
export function expectWholeLog(events: readonly ResponseStreamEvent[], response: ResponseBody): void {
  expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, index) => index));
  const types = events.map(({ type }) => type as string);
  for (const once of ["response.created", "response.queued"]) {
    expect(types.filter((type) => type === once)).toHaveLength(1);
  }
  expect(events.at(-1)).toHaveProperty("response", response);
  const added = events.filter((event) => event.type === "response.output_item.added");
  expect(added.map(({ item }) => item.id)).toEqual(response.output.map(({ id }) => id));
  for (const [outputIndex, item] of response.output.entries()) {
    const text = deltasOf(events, outputIndex);
    if (item.type === "message" || item.type === "reasoning") expect(textOf(item)).toBe(text);
    else if (item.type === "function_call" || item.type === "mcp_call") expect(item.arguments).toBe(text);
    else if (item.type === "code_interpreter_call") expect(item.code).toBe(text);
    else if (item.type === "custom_tool_call") expect(item.input).toBe(text);
    else if (item.type === "shell_call") expect(item.action.commands.join("")).toBe(text);
    else expect(text).toBe("");
  }
}
