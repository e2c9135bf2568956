import { evictDurableObject, runInDurableObject } from "cloudflare:test";
import { type CallToolResult, createMcpHandler, Server, type Tool } from "@modelcontextprotocol/server";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { McpServerTool } from "@responses-edge/responses-api/hosted-tools";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import type { Item } from "@responses-edge/responses-api/items/registry";
import { echoTool, type McpAccess } from "@responses-edge/responses-api/tools";
import type { EngineName, Replay } from "@responses-edge/turn/contract/engine";
import type { Response as ResponseBody, ResponseStreamEvent } from "openai/resources/responses/responses";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { parseEventStream } from "../conformance/sse-parser.ts";
import * as rig from "./recovery-rig.ts";
import { crash, decode, eventually, expectWholeLog, f, idsOf, pause } from "./recovery-rig.ts";

/** Background runs whose process dies in the middle of hosted tools: no call is made twice, and the turn continues. */

rig.useTokenizer();

const ENGINES: EngineName[] = ["chat", "harmony"];

// Models' output

/** A model's output in one round. */
interface Speech {
  thoughts?: string;
  calls?: readonly (readonly [name: string, input: string])[];
  text?: string;
}

/**
 * A model's output as the chunks of a server's stream, one for each token (a word of a chat model), without finish and
 * usage.
 */
function chunksOf(engine: EngineName, speech: Speech): object[] {
  return engine === "chat" ? chatChunks(speech) : new rig.TokenChunks().of(speechIds(speech));
}

function chatChunks({ thoughts = "", calls = [], text = "" }: Speech): object[] {
  const deltas: object[] = [];
  for (const reasoning of thoughts.match(/\s*\S+/g) ?? []) deltas.push({ reasoning });
  for (const content of text.match(/\s*\S+/g) ?? []) deltas.push({ content });
  for (const [index, [name, input]] of calls.entries()) {
    deltas.push({ tool_calls: [{ index, id: `call_${index}`, function: { name, arguments: "" } }] });
    for (const part of input.match(/[\s\S]{1,4}/g) ?? []) {
      deltas.push({ tool_calls: [{ index, function: { arguments: part } }] });
    }
  }
  return deltas.map((delta) => ({ choices: [{ index: 0, delta, finish_reason: null }] }));
}

/** A name with a dot, or `python`, is a built-in tool's. */
function header(name: string): string {
  const isBuiltin = name.includes(".") || name === "python";
  return isBuiltin
    ? `<|channel|>analysis to=${name} code<|message|>`
    : `<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>`;
}

function speechIds({ thoughts, calls = [], text }: Speech): number[] {
  const messages = [
    ...(thoughts === undefined ? [] : [`<|channel|>analysis<|message|>${thoughts}`]),
    ...calls.map(([name, input]) => header(name) + input),
    ...(text === undefined ? [] : [`<|channel|>final<|message|>${text}`]),
  ];
  const end = text === undefined ? "<|call|>" : "<|return|>";
  return idsOf(messages.join("<|end|><|start|>assistant") + end);
}

/** A generation of a model of either engine. */
class Generation extends rig.Generation {
  readonly body: { prompt?: string | number[]; messages?: rig.ChatMessage[]; tool_choice?: unknown };
  readonly #engine: EngineName;
  #hasCall = false;

  constructor(engine: EngineName, body: string) {
    super();
    this.#engine = engine;
    this.body = JSON.parse(body) as Generation["body"];
  }

  get ids(): number[] {
    const { prompt = [] } = this.body;
    return typeof prompt === "string" ? idsOf(prompt) : prompt;
  }

  /** The prompt as a text. */
  get prompt(): string {
    return this.#engine === "chat" ? JSON.stringify(this.body.messages) : decode(this.ids);
  }

  protected override get promptTokens(): number {
    return this.#engine === "chat" ? rig.wordsIn(this.body.messages ?? []) : this.ids.length;
  }

  say(chunks: readonly object[]): void {
    this.send(chunks, chunks.length);
    this.#hasCall ||= JSON.stringify(chunks).includes("tool_calls");
  }

  /** Outputs the rest, and its usage. */
  finish(rest: readonly object[]): void {
    this.say(rest);
    if (this.#engine === "chat") {
      const finish_reason = this.#hasCall ? "tool_calls" : "stop";
      this.send([{ choices: [{ index: 0, delta: {}, finish_reason }] }], 0);
    }
    this.end();
  }
}

// Tools

/** A call that a tool server has seen. */
interface SeenCall {
  run: string;
  name: string;
  input: string;
}

let calls: SeenCall[] = [];
let lists: string[] = [];
let credentials: (string | null)[] = [];
/** The requests that must wait, as `run:list` or `run:input`. */
const blocked = new Set<string>();

const TOOLS: Tool[] = ["echo", "fail", "python"].map((name) => ({
  name,
  description: `The tool ${name}.`,
  inputSchema: { type: "object", properties: { text: { type: "string" } } },
}));

/** A real MCP server, each of whose requests lives in the home that makes it. */
function toolServer(run: string, broken: boolean) {
  const text = (value: string): CallToolResult => ({ content: [{ type: "text", text: value }] });
  return createMcpHandler(() => {
    const server = new Server({ name: "sample", version: "1.0.0" }, { capabilities: { tools: {} } });
    server.setRequestHandler("tools/list", async () => {
      lists.push(run);
      await whileBlocked(`${run}:list`);
      if (broken) throw new Error("No tools today.");
      return { tools: TOOLS };
    });
    server.setRequestHandler("tools/call", async ({ params: { name, arguments: input = {} } }) => {
      if (name === "cleanup_session") return text("");
      const said = String(input.text ?? input.code ?? "");
      calls.push({ run, name, input: said });
      await whileBlocked(`${run}:${said}`);
      return name === "fail" ? { ...text("The disk is full."), isError: true } : text(`${said}!`);
    });
    return server;
  });
}

async function whileBlocked(name: string): Promise<void> {
  while (blocked.has(name)) await pause(20);
}

const PAGE = "<html><head><title>Zurich</title></head><body><p>Zurich lies on a lake.</p></body></html>";

const modelServer = rig.useModelServer({
  newGeneration: (body, path) => new Generation(path.endsWith("/chat/completions") ? "chat" : "harmony", body),
  promptText: ({ prompt }) => prompt,
  otherServer: (url, init) => {
    const [, path = ""] = url.pathname.split("/");
    if (url.hostname === "python.acme.dev") return toolServer("python", false).fetch(new Request(url, init));
    if (url.hostname === "tools.acme.dev") {
      credentials.push(new Headers(init?.headers).get("authorization"));
      return toolServer(path, url.pathname.includes("broken")).fetch(new Request(url, init));
    }
    return url.hostname === "pages.acme.dev" ? openPage(path, url.href) : undefined;
  },
});

beforeEach(() => {
  calls = [];
  lists = [];
  credentials = [];
  blocked.clear();
});
afterEach(() => blocked.clear());

async function openPage(run: string, url: string): Promise<Response> {
  calls.push({ run, name: "open", input: url });
  await whileBlocked(`${run}:open`);
  return new Response(PAGE, { headers: { "content-type": "text/html" } });
}

// Runs

interface RunOptions extends Omit<rig.NamedRunOptions<Generation>, "server" | "withheld" | "access"> {
  /** Further options of the MCP server. */
  server?: Partial<McpServerTool>;
  /** Path at the MCP server after the run's name. */
  path?: string;
}

/** A run with an MCP server of its own. */
class Run extends rig.NamedRun<Generation> {
  constructor({ name = rig.newRunName(), server: more, path, request = {}, ...options }: RunOptions) {
    const tools = request.tools ?? [mcpServer(name, path, more)];
    const access: Record<string, McpAccess> = {};
    for (const each of tools) {
      if (each.type !== "mcp" || each.server_url === undefined) continue;
      const { authorization, server_url } = each;
      access[each.server_label] = { server_url, ...(authorization !== undefined && { authorization }) };
    }
    const withheld = tools.flatMap((each) => (each.type === "mcp" && each.authorization ? [each.server_label] : []));
    super({
      ...options,
      server: modelServer,
      name,
      request: { ...request, tools: tools.map(echoTool) },
      withheld,
      access,
    });
  }

  static begin(options: RunOptions): Promise<Run> {
    return new Run(options).begin();
  }

  server(path?: string, more?: Partial<McpServerTool>): McpServerTool {
    return mcpServer(this.name, path, more);
  }

  get calls(): SeenCall[] {
    return calls.filter(({ run }) => run === this.name);
  }

  /** A call, as soon as a tool server has got it. */
  async called(input: string): Promise<SeenCall> {
    const call = await eventually(() => this.calls.find((each) => each.input === input), `'${input}' was not called.`);
    await this.written();
    return call;
  }
}

function mcpServer(name: string, path = "mcp", more: Partial<McpServerTool> = {}): McpServerTool {
  const server_url = `https://tools.acme.dev/${name}/${path}`;
  return { type: "mcp", server_label: "sample", server_url, require_approval: "never", ...more } as McpServerTool;
}

/** The events that end the server's work on an item. A script's failure has none of its own. */
const OUTCOME = /^response\.(mcp_call|mcp_list_tools|web_search_call|code_interpreter_call)\.(completed|failed)$/;

/** The rules of a stream's order (`test/conformance` has all of them), of one from its first event to its last. */
function expectInOrder(events: readonly ResponseStreamEvent[], response: ResponseBody): void {
  expectWholeLog(events, response);
  const types = events.map(({ type }) => type as string);
  expect(types.slice(0, 3)).toEqual(["response.created", "response.queued", "response.in_progress"]);
  const lifecycle = types.filter((type) =>
    /^response\.(created|queued|in_progress|completed|failed|incomplete)$/.test(type),
  );
  expect(lifecycle).toHaveLength(4);
  expect(lifecycle.at(-1)).toBe(types.at(-1));
  const added = events.filter((event) => event.type === "response.output_item.added");
  expect(added.map(({ output_index }) => output_index)).toEqual(response.output.map((_, index) => index));
  for (const [outputIndex, item] of response.output.entries()) {
    const own = events.filter((event) => "output_index" in event && event.output_index === outputIndex);
    const [first, ...rest] = own;
    expect(first).toMatchObject({ type: "response.output_item.added", item: { id: item.id, type: item.type } });
    for (const event of rest) if ("item_id" in event) expect(event.item_id).toBe(item.id);
    const ends = own.filter((event) => event.type === "response.output_item.done");
    const isCutOff = response.status === "failed" && "status" in item && item.status === "incomplete";
    if (isCutOff) expect(ends).toEqual([]);
    else {
      expect(ends).toEqual([own.at(-1)]);
      expect(ends).toMatchObject([{ item }]);
    }
    const ownTypes = own.map(({ type }) => type as string);
    const outcomes = ownTypes.filter((type) => OUTCOME.test(type));
    const isWork =
      outcomes.length > 0 || /^(mcp_call|mcp_list_tools|web_search_call|code_interpreter_call)$/.test(item.type);
    if (isWork) {
      // An item that was begun again has none, either.
      const hasOutcome = !("status" in item && item.status === "incomplete");
      expect(outcomes).toHaveLength(hasOutcome ? 1 : 0);
      if (hasOutcome) expect(ownTypes.at(-2)).toBe(outcomes[0]);
      expect(ownTypes.filter((type) => type === `response.${item.type}.in_progress`)).toEqual([ownTypes[1]]);
    }
    if (isCutOff) continue;
    const finished = own.filter(({ type }) => /_(arguments|code)\.done$/.test(type));
    if (item.type === "mcp_call" || item.type === "function_call") {
      expect(finished).toMatchObject([{ arguments: item.arguments }]);
    } else if (item.type === "code_interpreter_call") {
      expect(finished).toMatchObject([{ code: item.code }]);
    }
  }
}

/** Checks the rules of every run. Gives its events. */
async function expectWhole(run: Run): Promise<ResponseStreamEvent[]> {
  const response = await run.retrieve();
  const stream = await run.replay();
  const { events: wire, done } = parseEventStream(stream);
  const events = wire.map(({ data }) => data as ResponseStreamEvent);
  expect(done).toBe(true);
  expect(wire.map(({ name }) => name)).toEqual(events.map(({ type }) => type));
  expectInOrder(events, response);
  expect(stream).not.toMatch(/^data: \[(?!DONE)/m);
  expect(stream).not.toMatch(/"(sampled|called|answering|dispatched|answered|round|superseded|lost|outage)":/);
  for (const item of response.output) expect(item).not.toHaveProperty("status", "in_progress");
  for (const call of run.calls) {
    const same = run.calls.filter(({ name, input }) => name === call.name && input === call.input);
    expect(same).toEqual([call]);
  }
  return events;
}

const ECHO: Speech = { thoughts: "Let us see.", calls: [["sample__echo", '{"text":"one 🦜"}']] };
const DONE: Speech = { thoughts: "It has answered.", text: "So it is done, 你好, and all is well." };

/** A run without a death: its prompts, and its stored data. */
async function uninterrupted(options: RunOptions, speeches: Speech[]) {
  const run = await Run.begin(options);
  const prompts: string[] = [];
  for (const [index, speech] of speeches.entries()) {
    const generation = await run.generation(index + 1);
    prompts.push(without(run, generation));
    generation.finish(chunksOf(options.engine, speech));
  }
  const response = await run.ended();
  await expectWhole(run);
  return { run, response, prompts, kept: await run.kept() };
}

/** A prompt without the name of its run. */
const without = (run: Run, { prompt }: Generation): string => prompt.replaceAll(run.name, "NAME");

/** Lets a run continue, and checks that it ends like one without a death. */
async function expectEndsLike(run: Run, whole: Awaited<ReturnType<typeof uninterrupted>>): Promise<void> {
  const response = await run.ended();
  expect(response).toMatchObject({ status: whole.response.status, usage: whole.response.usage });
  expect(await run.kept()).toEqual(whole.kept);
  await expectWhole(run);
}

const NOT_KNOWN = /restarted while this tool was running\. Whether it did its work is not known/;

describe.each(ENGINES)("a run of the engine '%s' whose process dies", (engine) => {
  const options: RunOptions = { engine };
  const said = (speech: Speech) => chunksOf(engine, speech);

  it.each(["read", "unread"])("while it lists tools (%s) lists them again, in the same item", async (how) => {
    const whole = await uninterrupted(options, [ECHO, DONE]);
    const run = new Run(options);
    blocked.add(`${run.name}:list`);
    await run.begin();
    await eventually(() => lists.includes(run.name), "Not listed.");
    await run.written();
    if (how === "read") await run.read();
    await crash();
    blocked.clear();
    await run.retrieve();
    (await run.generation(1)).finish(said(ECHO));
    (await run.generation(2)).finish(said(DONE));
    await expectEndsLike(run, whole);
    expect(lists.filter((name) => name === run.name)).toHaveLength(2);
  });

  it("between two lists keeps the first one, also a failed one", async () => {
    const make = (): Run => {
      const run = new Run(options);
      const tools = [
        run.server(),
        run.server("broken", { server_label: "broken" }),
        run.server("later", { server_label: "later" }),
      ];
      return new Run({ ...options, name: run.name, request: { tools } });
    };
    const run = make();
    blocked.add(`${run.name}:list`);
    await run.begin();
    await run.read();
    await eventually(() => lists.filter((name) => name === run.name).length === 3, "Not listed.");
    await run.written();
    await crash();
    blocked.clear();
    await run.retrieve();
    (await run.generation(1)).say(said({ text: "One two" }).slice(0, engine === "chat" ? 2 : 5));
    await run.logged(1);
    const asked = lists.length;
    await crash();
    await run.retrieve();
    const again = await run.generation(2);
    if (engine === "chat") again.finish([]);
    else again.finish(said({ text: "One two" }).slice(5));
    const response = await run.ended();
    expect(response.output).toMatchObject([
      { type: "mcp_list_tools", server_label: "sample", tools: [{}, {}, {}] },
      { type: "mcp_list_tools", server_label: "broken", error: expect.any(String), tools: [] },
      { type: "mcp_list_tools", server_label: "later", tools: [{}, {}, {}] },
      { type: "message", content: [{ text: "One two" }] },
    ]);
    expect(lists).toHaveLength(asked);
    await expectWhole(run);
  });

  it("after it has listed tools does not list them again", async () => {
    const whole = await uninterrupted(options, [ECHO, DONE]);
    const run = await Run.begin(options);
    await run.logged(1);
    await crash();
    await run.retrieve();
    const again = await run.generation(2);
    expect(without(run, again)).toBe(whole.prompts[0]);
    again.finish(said(ECHO));
    (await run.generation(3)).finish(said(DONE));
    await expectEndsLike(run, whole);
    expect(lists.filter((name) => name === run.name)).toHaveLength(1);
  });

  it("after a call was dispatched does not make it again, and tells the model", async () => {
    const run = new Run(options);
    blocked.add(`${run.name}:one 🦜`);
    await run.begin();
    (await run.generation(1)).finish(said(ECHO));
    await run.called("one 🦜");
    await crash();
    blocked.clear();
    await run.retrieve();
    const second = await run.generation(2);
    expect(second.prompt).toMatch(NOT_KNOWN);
    expect(second.prompt).toContain("one 🦜");
    second.finish(said(DONE));
    const response = await run.ended();
    expect(response).toMatchObject({ status: "completed" });
    expect(response.output.filter(({ type }) => type === "mcp_call")).toMatchObject([
      {
        status: "failed",
        output: null,
        error: { type: "mcp_protocol_error", message: expect.stringMatching(NOT_KNOWN) },
      },
    ]);
    expect(JSON.stringify((await run.kept()).replays)).toMatch(NOT_KNOWN);
    await expectWhole(run);
    expect(run.calls).toHaveLength(1);
    // The next turn's prompt is the same.
    const { home, turn } = run.address;
    const next = await Run.begin({ engine, address: newTurnAddress(home), parent: turn });
    expect((await next.generation(1)).prompt).toMatch(NOT_KNOWN);
    (await next.generation(1)).finish(said(DONE));
    await next.ended();
  });

  it("between parallel calls keeps the finished one, gives the dispatched ones up, and makes the last", async () => {
    const letters = [..."abcdefghij"];
    const parallel: Speech = {
      thoughts: "All of them.",
      calls: letters.map((letter) => ["sample__echo", `{"text":"${letter}"}`] as const),
    };
    const run = new Run(options);
    for (const letter of letters) blocked.add(`${run.name}:${letter}`);
    await run.begin();
    (await run.generation(1)).finish(said(parallel));
    await run.called("h");
    expect(run.calls).toHaveLength(8);
    blocked.delete(`${run.name}:c`);
    await run.called("i");
    await crash();
    blocked.clear();
    await run.retrieve();
    const second = await run.generation(2);
    second.finish(said(DONE));
    const response = await run.ended();
    const answers = response.output.flatMap((item) => (item.type === "mcp_call" ? [item.output] : []));
    expect(answers).toEqual([null, null, "c!", null, null, null, null, null, null, "j!"]);
    expect(run.calls).toHaveLength(10);
    await expectWhole(run);
    expect(second.prompt.match(/Whether it did its work/g)).toHaveLength(8);
    expect(second.prompt).toContain("c!");
    expect(second.prompt).toContain("j!");
    const replays = (await run.kept()).replays as Replay[];
    expect(replays.filter(({ exchange }) => exchange).map(({ exchange }) => exchange?.arguments)).toEqual(
      expect.arrayContaining(letters.map((letter) => `{"text":"${letter}"}`)),
    );
  });

  it("after all results requests the next round", async () => {
    const whole = await uninterrupted(options, [ECHO, DONE]);
    const run = await Run.begin(options);
    (await run.generation(1)).finish(said(ECHO));
    await run.generation(2);
    await crash();
    await run.retrieve();
    const again = await run.generation(3);
    expect(without(run, again)).toBe(whole.prompts[1]);
    again.finish(said(DONE));
    await expectEndsLike(run, whole);
    expect(run.calls).toHaveLength(1);
  });

  it("in the second generation continues in it", async () => {
    // A chat model's server does not report the length of its reasoning.
    const end = engine === "chat" ? { text: DONE.text ?? "" } : DONE;
    const whole = await uninterrupted(options, [ECHO, end]);
    const all = said(end);
    const begin = engine === "chat" ? all.findIndex((chunk) => JSON.stringify(chunk).includes("content")) + 1 : 0;
    const positions = all.map((_, index) => index).filter((index) => index >= begin && index < all.length);
    const runs = await Promise.all(positions.map(() => Run.begin(options)));
    await Promise.all(
      runs.map(async (run, index) => {
        (await run.generation(1)).finish(said(ECHO));
        (await run.generation(2)).say(all.slice(0, positions[index]));
        await run.logged(2);
      }),
    );
    await crash();
    await Promise.all(
      runs.map(async (run, index) => {
        await run.retrieve();
        const [before, again] = [await run.generation(2), await run.generation(3)];
        const from = engine === "chat" ? positions[index] : again.ids.length - before.ids.length;
        if (engine === "harmony") expect(again.ids.slice(0, before.ids.length)).toEqual(before.ids);
        again.finish(all.slice(from));
        await expectEndsLike(run, whole);
        expect(run.calls).toHaveLength(1);
        expect(lists.filter((name) => name === run.name)).toHaveLength(1);
      }),
    );
  });

  it("in a call beside one of the client's leaves it to the client", async () => {
    const make = (): Run => {
      const run = new Run(options);
      return new Run({ ...options, name: run.name, request: { tools: [run.server(), f] } });
    };
    const both: Speech = { calls: [...(ECHO.calls ?? []), ["f", "{}"]] };
    const run = make();
    blocked.add(`${run.name}:one 🦜`);
    await run.begin();
    (await run.generation(1)).finish(said(both));
    await run.called("one 🦜");
    await crash();
    blocked.clear();
    const response = await run.ended();
    expect(response).toMatchObject({
      status: "completed",
      output: [
        {},
        { type: "mcp_call", status: "failed" },
        { type: "function_call", status: "completed", arguments: "{}" },
      ],
    });
    await expectWhole(run);
    expect(run.asked).toHaveLength(1);
  });

  it("does not force a call again that was forced in its first round", async () => {
    const forced: RunOptions = { engine, request: { tool_choice: "required" } };
    const whole = await uninterrupted(forced, [{ calls: ECHO.calls ?? [] }, DONE]);
    const run = await Run.begin(forced);
    (await run.generation(1)).finish(said({ calls: ECHO.calls ?? [] }));
    await run.generation(2);
    // The next round begins with the first event of its generation.
    (await run.generation(2)).say(said(DONE).slice(0, 1));
    await run.logged(2);
    await crash();
    await run.retrieve();
    const again = await run.generation(3);
    expect(again.body.tool_choice).toEqual((await run.generation(2)).body.tool_choice);
    if (engine === "chat") {
      // Its reasoning begins again.
      again.finish(said(DONE));
      expect((await run.ended()).status).toBe("completed");
      return;
    }
    again.finish(said(DONE).slice(again.ids.length - (await run.generation(2)).ids.length));
    await expectEndsLike(run, whole);
  });

  it("in an approved call does not make it again; before it, makes it once", async () => {
    const ask: RunOptions = { engine, server: { require_approval: "always" } };
    const approving = async (name?: string) => {
      const asked = await Run.begin({ ...ask, ...(name !== undefined && { name }) });
      (await asked.generation(1)).finish(said(ECHO));
      const response = await asked.ended();
      const request = response.output.find(({ type }) => type === "mcp_approval_request");
      await expectWhole(asked);
      expect(asked.calls).toEqual([]);
      const approval: Item = {
        id: `mcpr_${asked.name}`,
        type: "mcp_approval_response",
        approval_request_id: request?.id ?? "",
        approve: true,
        reason: null,
      } as unknown as Item;
      const { home, turn } = asked.address;
      return new Run({ ...ask, name: asked.name, address: newTurnAddress(home), parent: turn, input: [approval] });
    };
    const run = await approving();
    blocked.add(`${run.name}:one 🦜`);
    await run.begin();
    await run.called("one 🦜");
    await crash();
    blocked.clear();
    await run.retrieve();
    const first = await run.generation(1);
    expect(first.prompt).toMatch(NOT_KNOWN);
    first.say(said(DONE).slice(0, engine === "chat" ? 5 : 20));
    await run.logged(1);
    await crash();
    await run.retrieve();
    const again = await run.generation(2);
    again.finish(said(DONE).slice(engine === "chat" ? 5 : again.ids.length - first.ids.length));
    expect(await run.ended()).toMatchObject({
      status: "completed",
      output: [{ type: "mcp_call", status: "failed" }, { type: "reasoning" }, { type: "message" }],
    });
    await expectWhole(run);
    expect(run.calls).toHaveLength(1);

    // The call was answered, and the process dies before the model is asked, and during its answer.
    const other = await approving();
    await other.begin();
    await other.generation(1);
    await crash();
    await other.retrieve();
    const second = await other.generation(2);
    expect(second.prompt).toContain("one 🦜!");
    second.finish(said(DONE));
    expect(await other.ended()).toMatchObject({
      status: "completed",
      output: [{ type: "mcp_call", status: "completed", output: "one 🦜!" }, {}, {}],
    });
    await expectWhole(other);
    expect(other.calls).toHaveLength(1);
  });

  it("during the opening of a page, and during a script, repeats neither", async () => {
    const open = engine === "chat" ? "browser_open" : "browser.open";
    const make = (): Run => {
      const run = new Run(options);
      const tools = [{ type: "web_search" }, { type: "code_interpreter", container: { type: "auto" } }];
      return new Run({ ...options, name: run.name, request: { tools: tools as NonNullable<CreateRequest["tools"]> } });
    };
    const run = make();
    blocked.add(`${run.name}:open`);
    await run.begin();
    const url = `https://pages.acme.dev/${run.name}/zurich`;
    (await run.generation(1)).finish(said({ calls: [[open, JSON.stringify({ id: url })]] }));
    await eventually(() => run.calls.length > 0, "Not opened.");
    await run.written();
    await crash();
    blocked.clear();
    await run.retrieve();
    const script = `print(1) # ${run.name}`;
    blocked.add(`python:${script}`);
    const second = await run.generation(2);
    expect(second.prompt).toMatch(NOT_KNOWN);
    second.finish(said({ calls: [["python", engine === "chat" ? JSON.stringify({ code: script }) : script]] }));
    await eventually(() => calls.some(({ name }) => name === "python"), "Not run.");
    await run.written();
    await crash();
    blocked.clear();
    await run.retrieve();
    const third = await run.generation(3);
    expect(third.prompt.match(/Whether it did its work/g)).toHaveLength(2);
    third.finish(said(DONE));
    const response = await run.ended();
    expect(response).toMatchObject({
      status: "completed",
      output: [
        { type: "web_search_call", status: "failed", action: { type: "open_page", url } },
        { type: "code_interpreter_call", status: "failed", code: script },
        { type: "reasoning" },
        { type: "message" },
      ],
    });
    await expectWhole(run);
    expect(calls.filter(({ name }) => name === "python")).toHaveLength(1);
  });

  it("has a browser with its opened pages", async () => {
    const [open, find] = engine === "chat" ? ["browser_open", "browser_find"] : ["browser.open", "browser.find"];
    const request = { tools: [{ type: "web_search" }] as unknown as NonNullable<CreateRequest["tools"]> };
    const run = await Run.begin({ engine, request });
    const url = `https://pages.acme.dev/${run.name}/zurich`;
    (await run.generation(1)).finish(said({ calls: [[open, JSON.stringify({ id: url })]] }));
    expect((await run.generation(2)).prompt).toContain("Zurich lies on a lake.");
    await crash();
    await run.retrieve();
    (await run.generation(3)).finish(said({ calls: [[find, '{"pattern":"lake"}']] }));
    const last = await run.generation(4);
    expect(last.prompt).toMatch(/lake/);
    last.finish(said(DONE));
    expect(await run.ended()).toMatchObject({
      output: [
        { type: "web_search_call", status: "completed", action: { type: "open_page" } },
        { type: "web_search_call", status: "completed", action: { type: "find_in_page", pattern: "lake" } },
        {},
        {},
      ],
    });
    await expectWhole(run);
    expect(run.calls).toHaveLength(1);
  });

  it("makes at most as many rounds of calls as without", async () => {
    const limited: RunOptions = { engine, request: { max_tool_calls: 1 } };
    const whole = await uninterrupted(limited, [ECHO, DONE]);
    const run = await Run.begin(limited);
    (await run.generation(1)).finish(said(ECHO));
    await run.generation(2);
    await crash();
    await run.retrieve();
    const again = await run.generation(3);
    expect(without(run, again)).toBe(whole.prompts[1]);
    again.finish(said(DONE));
    await expectEndsLike(run, whole);
  });

  it("by eviction in the middle of a call does not make it again", async () => {
    const run = new Run(options);
    blocked.add(`${run.name}:one 🦜`);
    await run.begin();
    (await run.generation(1)).finish(said(ECHO));
    await run.called("one 🦜");
    let isEvicted = false;
    const evicted = evictDurableObject(run.home).then(() => {
      isEvicted = true;
    });
    // An evicted object may still send a request, even end the turn, and is stopped after that.
    blocked.clear();
    let answered = 1;
    await eventually(() => {
      for (; answered < run.asked.length; answered += 1) run.asked[answered]?.finish(said(DONE));
      return isEvicted;
    }, "It was not evicted.");
    await evicted;
    const before = run.asked.length;
    await run.retrieve();
    const ended = run.ended();
    const next = await Promise.race([run.generation(before + 1), ended.then(() => undefined)]);
    next?.finish(said(DONE));
    expect((await ended).status).toBe("completed");
    for (const { prompt } of run.asked.slice(1)) {
      expect(prompt).toMatch(/one 🦜!|Whether it did its work is not known/);
    }
    await expectWhole(run);
    expect(run.calls).toHaveLength(1);
  });

  it("and whose server is no longer allowed fails with the reason", async () => {
    const run = await Run.begin(options);
    (await run.generation(1)).say(said(DONE).slice(0, 1));
    await run.logged(1);
    await run.sql("UPDATE runs SET body = replace(body, 'https://tools.acme.dev', 'http://10.0.0.1')");
    await crash();
    expect(await run.ended()).toMatchObject({ status: "failed", error: { message: expect.stringMatching(/public/) } });
    await expectWhole(run);
  });
});

describe("a chat model in the middle of a call", () => {
  it("ends that call as incomplete, makes it again in another item, and only this one is run", async () => {
    const all = chunksOf("chat", { calls: [...(ECHO.calls ?? []), ["sample__echo", '{"text":"two"}']] });
    const runs = await Promise.all(all.map(() => Run.begin({ engine: "chat" })));
    await Promise.all(
      runs.map(async (run, index) => {
        (await run.generation(1)).say(all.slice(0, index + 1));
        await run.logged(1);
      }),
    );
    await crash();
    await Promise.all(
      runs.map(async (run) => {
        await run.retrieve();
        (await run.generation(2)).finish(chunksOf("chat", { calls: ECHO.calls ?? [] }));
        (await run.generation(3)).finish(chunksOf("chat", DONE));
        const response = await run.ended();
        expect(response.status).toBe("completed");
        const calls = response.output.filter((item) => item.type === "mcp_call");
        expect(calls.at(-1)).toMatchObject({ status: "completed" });
        expect(calls.length).toBeGreaterThan(1);
        for (const item of calls.slice(0, -1)) expect(item).toMatchObject({ status: "incomplete", output: null });
        await expectWhole(run);
        expect(run.calls).toHaveLength(1);
        expect(run.asked).toHaveLength(3);
      }),
    );
  });
});

describe("gpt-oss anywhere in its calls", () => {
  const url = "https://pages.acme.dev/page/zurich";
  const builtins = [{ type: "web_search" }, { type: "code_interpreter", container: { type: "auto" } }];
  const cases: [string, Speech, Partial<CreateRequest>, number][] = [
    ["a call", ECHO, {}, 1],
    ["two calls", { calls: [...(ECHO.calls ?? []), ["sample__fail", '{"text":"two"}']] }, {}, 2],
    ["a call that needs approval", ECHO, {}, 0],
    ["an opened page", { thoughts: "Hm.", calls: [["browser.open", JSON.stringify({ id: url })]] }, { tools: [] }, 1],
    ["a script", { thoughts: "Hm.", calls: [["python", "print(1)"]] }, { tools: [] }, 1],
    [
      "a script in JSON, and a page",
      {
        calls: [
          ["python", '{"code":"print(1)"}'],
          ["browser.open", JSON.stringify({ id: url })],
        ],
      },
      { tools: [] },
      2,
    ],
  ];
  it.each(cases)("continues after the last token in its log: %s", async (kind, speech, request, count) => {
    const options: RunOptions = { engine: "harmony", request };
    if (request.tools) options.request = { tools: builtins as unknown as NonNullable<CreateRequest["tools"]> };
    if (kind.includes("approval")) options.server = { require_approval: "always" };
    const isLast = count === 0;
    const whole = await uninterrupted(options, isLast ? [speech] : [speech, DONE]);
    const made = calls.length;
    expect(made).toBe(count);
    const all = chunksOf("harmony", speech);
    // If two calls begin with the call of another row, only that row dies in it.
    const from = kind === "two calls" ? chunksOf("harmony", ECHO).length - 1 : 0;
    const runs = await Promise.all([...all, {}].slice(from).map(() => Run.begin(options)));
    await Promise.all(
      runs.map(async (run, index) => {
        (await run.generation(1)).say(all.slice(0, from + index));
        await run.logged(1);
      }),
    );
    await crash();
    await Promise.all(
      runs.map(async (run) => {
        await run.retrieve();
        const first = await run.generation(1);
        let next = 2;
        const again = await eventually(
          async () => run.asked[1] ?? ((await run.retrieve()).status === "completed" ? first : undefined),
          "Neither asked again nor ended.",
        );
        const sampled = again === first ? all.length : again.ids.length - first.ids.length;
        // The whole output was logged, so the next round follows.
        if (again === first) expect(isLast).toBe(true);
        else if (sampled >= all.length) expect(without(run, again)).toBe(whole.prompts[1]);
        else {
          expect(again.ids.slice(0, first.ids.length)).toEqual(first.ids);
          again.finish(all.slice(sampled));
          next += 1;
        }
        if (!isLast) (await run.generation(next)).finish(chunksOf("harmony", DONE));
        await expectEndsLike(run, whole);
        expect(run.asked).toHaveLength(again === first ? 1 : isLast ? 2 : next);
      }),
    );
    expect(calls).toHaveLength(made + runs.length * count);
  });
});

describe("credentials of an MCP server", () => {
  const SECRET = "sk-very-secret";

  it.each(ENGINES)("are nowhere in the storage, and a call after a crash reports their loss (%s)", async (engine) => {
    const rows = (run: Run) =>
      runInDurableObject(run.home, (_, { storage: { sql } }) =>
        sql
          .exec<{ name: string }>(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '\\_cf%' ESCAPE '\\'",
          )
          .toArray()
          .flatMap(({ name }) =>
            sql
              .exec(`SELECT * FROM ${name}`)
              .toArray()
              .map((row) => JSON.stringify(row)),
          ),
      );
    const expectNone = async (run: Run) => {
      const all = await rows(run);
      expect(all.length).toBeGreaterThan(0);
      expect(all.filter((row) => row.includes(SECRET) || row.includes("key=hidden"))).toEqual([]);
    };
    const run = new Run({ engine, path: "mcp?key=hidden", server: { authorization: SECRET } });
    blocked.add(`${run.name}:list`);
    await run.begin();
    await expectNone(run);
    blocked.clear();
    (await run.generation(1)).finish(chunksOf(engine, ECHO));
    const second = await run.generation(2);
    expect(new Set(credentials)).toEqual(new Set([`Bearer ${SECRET}`]));
    await run.read();
    await expectNone(run);
    second.abort();
    const before = credentials.length;
    await crash();
    await expectNone(run);
    await run.retrieve();
    const third = await run.generation(3);
    third.finish(chunksOf(engine, { calls: [["sample__echo", '{"text":"two"}']] }));
    const last = await run.generation(4);
    expect(last.prompt).toContain("credentials for the MCP server 'sample' were lost in a restart");
    last.finish(chunksOf(engine, DONE));
    const response = await run.ended();
    expect(response.output.filter(({ type }) => type === "mcp_call")).toMatchObject([
      { status: "completed", output: "one 🦜!" },
      { status: "failed", output: null, error: { message: expect.stringMatching(/were lost in a restart/) } },
    ]);
    expect(credentials).toHaveLength(before);
    await expectNone(run);
    await expectWhole(run);
  });
});
