import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Response, ResponseInputItem, ResponseStreamEvent, Tool } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startToolServer, type ToolServer } from "../../dev/tool-server/server.ts";
import { COMPLETE, KEY, toolProcesses } from "../tool-server/support.ts";
import { ADMIN_KEY, makeKey, newTenant, sha256, usageOf } from "./key-support.ts";
import { CHAT, MODELS, type ProgramGateway, program, startPrograms, writing } from "./program-support.ts";
import { eventually } from "./support.ts";
import { ask, generations, itemsOfType, onlyItem, textOf, typesIn } from "./tool-support.ts";
import { ended } from "./turns.ts";

/** The tools that programs may call, besides MCP servers and functions (`programs.test.ts`). */

let gateway: ProgramGateway;
let python: ToolServer;
let web: Server;
let page: string;
let store: string;
/** Searches of the web, oldest first; one for `held` is answered once it is released. */
let searches: string[] = [];
let release: (() => void) | undefined;
const WIDE = "Tea is steeped for three minutes.";

beforeAll(async () => {
  web = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://web");
    const query = searchParams.get("q");
    if (query !== null) searches.push(query);
    const results = [{ url: page, title: "Tea", content: WIDE }];
    const answer = () =>
      pathname === "/search"
        ? response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ results }))
        : response.writeHead(200, { "content-type": "text/html" }).end(`<title>Tea</title><p>${WIDE}</p>`);
    if (query === "held") release = answer;
    else answer();
  });
  await new Promise<void>((resolve) => web.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
  page = `${origin}/tea`;
  python = await startToolServer({ apiKey: KEY });
  gateway = await startPrograms({
    MCP_SERVERS: origin,
    SEARXNG_URL: origin,
    TOOL_SERVERS: JSON.stringify({ python: python.pythonUrl }),
    TOOL_SERVER_API_KEY: KEY,
    ADMIN_KEY,
    API_KEYS: `any:${sha256("any")}`,
    EMBEDDINGS_MODEL: "simulator",
  });
  const { openai } = gateway;
  store = (await openai.vectorStores.create({})).id;
  const file = await openai.files.create({ file: new File([WIDE], "tea.md"), purpose: "assistants" });
  await openai.vectorStores.files.createAndPoll(store, { file_id: file.id }, { pollIntervalMs: 20 });
});
afterAll(async () => {
  await gateway.close();
  await python.close();
  web.closeAllConnections();
  web.close();
});

const INCLUDE = [
  "file_search_call.results",
  "web_search_call.action.sources",
  "code_interpreter_call.outputs",
] as const;

const byPrograms: { allowed_callers: ("direct" | "programmatic")[] } = { allowed_callers: ["programmatic"] };
const fileSearch = () => ({ type: "file_search", vector_store_ids: [store], ...byPrograms }) as Tool;
const webSearch = { type: "web_search", ...byPrograms } as Tool;
const code = { type: "code_interpreter", container: { type: "auto" }, ...byPrograms } as Tool;

interface Hosted {
  tool: () => Tool;
  /** Two calls at once, and a value of their results. */
  code: () => string;
  /** The fields of each call's item. */
  item: () => { type: "file_search_call" | "web_search_call" | "code_interpreter_call" } & Record<string, unknown>;
  result: string;
  /** What its events tell between `added` and `done`. */
  life: string[];
  usage?: object;
}

const HOSTED: Record<string, Hosted> = {
  file_search: {
    tool: fileSearch,
    code: () => `const found = await Promise.all(["tea", "steeped"].map((query) => tools.file_search({ queries: [query] })));
      return found.map((each) => each.includes("three minutes")).join();`,
    item: () => ({ type: "file_search_call", results: [expect.objectContaining({ filename: "tea.md", text: WIDE })] }),
    result: "true,true",
    life: ["in_progress", "searching", "completed"],
  },
  web_search: {
    tool: () => webSearch,
    code: () => `const found = await Promise.all(["tea", "cups"].map((query) => tools.browser_search({ query })));
      return found.map((each) => each.includes("three minutes")).join();`,
    item: () => ({
      type: "web_search_call",
      action: expect.objectContaining({ type: "search", sources: [{ type: "url", url: page }] }),
    }),
    result: "true,true",
    life: ["in_progress", "searching", "completed"],
    usage: { web_search: { num_requests: 2 } },
  },
  ...(COMPLETE && {
    code_interpreter: {
      tool: () => code,
      code: () => `const sums = await Promise.all([1, 2].map((n) => tools.python({ code: "print(40 + " + n + ")" })));
        return sums.map((each) => each.trim()).join();`,
      item: () => ({
        type: "code_interpreter_call",
        container_id: expect.stringMatching(/^cntr_/),
        outputs: [{ type: "logs", logs: expect.stringMatching(/^4[12]\n$/) }],
      }),
      result: "41,42",
      life: ["in_progress", "interpreting", "completed"],
    },
  }),
};

/** The types of an item's own events, without those of its text. */
function lifeOf(events: readonly ResponseStreamEvent[], { id }: { id: string }): string[] {
  const own = events.flatMap((event) => ("item_id" in event && event.item_id === id ? [event.type] : []));
  return own.flatMap((type) => (/\.(delta|done)$/.test(type) ? [] : [type.slice(type.lastIndexOf(".") + 1)]));
}

describe.each(Object.entries(HOSTED))("%s, called by a program", (_name, hosted) => {
  it.each(MODELS)("of %s, has its items, events and usage, and tells the model nothing", async (model) => {
    const fields = { model, tools: [program, hosted.tool()], include: [...INCLUDE] };
    const asked = { ...fields, input: writing(model, hosted.code()) };
    const { response, events } = await ask(gateway, "stream", asked);
    const { type, ...shown } = hosted.item();
    expect(typesIn(response)).toEqual(["program", type, type, "program_output", "message"]);
    const { call_id } = onlyItem(response, "program");
    const caller = { type: "program", caller_id: call_id };
    for (const [index, item] of itemsOfType(response, type).entries()) {
      expect(item).toMatchObject({ ...shown, status: "completed", caller, call_id: `${call_id}_${index}` });
      expect(lifeOf(events, item)).toEqual(hosted.life);
    }
    expect(onlyItem(response, "program_output")).toMatchObject({ status: "completed", result: hosted.result });
    if (hosted.usage) expect(response.tool_usage).toMatchObject(hosted.usage);
    expect(JSON.stringify(generations(gateway).at(-1))).not.toContain(`${call_id}_0`);
    const stored = await gateway.openai.responses.retrieve(response.id, { include: [...INCLUDE] });
    expect(stored.output).toEqual(response.output);
  });

  it("counts against 'max_tool_calls'", async () => {
    const fields = { model: CHAT, tools: [program, hosted.tool()], max_tool_calls: 1 };
    const response = await gateway.openai.responses.create({ ...fields, input: writing(CHAT, hosted.code()) });
    expect(typesIn(response)).toEqual(["program", "program_output", "message"]);
    expect(onlyItem(response, "program_output")).toMatchObject({
      status: "incomplete",
      result: expect.stringContaining("max_tool_calls"),
    });
  });

  it("cannot be called by a program if only the model may call it", async () => {
    const direct = { ...hosted.tool(), allowed_callers: ["direct"] } as Tool;
    const input = writing(CHAT, hosted.code());
    const response = await gateway.openai.responses.create({ model: CHAT, tools: [program, direct], input });
    expect(typesIn(response)).toEqual(["program", "program_output", "message"]);
    expect(onlyItem(response, "program_output").result).toContain("is not a function");
    expect(textOf(response)).toContain("is not a function");
  });
});

it.runIf(COMPLETE)("a session of the container is one, however many programs' calls have used it", async () => {
  const key = await makeKey(gateway, newTenant(), {});
  const client = gateway.client({ apiKey: key.value });
  const input = writing(CHAT, HOSTED.code_interpreter?.code() ?? "");
  await client.responses.create({ model: CHAT, tools: [program, code], input });
  await eventually(async () => (await usageOf(gateway, key))?.num_model_requests === 1);
  expect(await usageOf(gateway, key, "code_interpreter_sessions")).toMatchObject({ num_sessions: 1 });
});

it.runIf(COMPLETE)("none is called twice after a kill; a call that the kill has interrupted throws", async () => {
  const body = `const size = async (code) => (await tools.python({ code: "import os, time\\n" + code })).trim();
    const add = (name) => "open('/mnt/data/" + name + "', 'a').write('x')\\n";
    const first = await size(add("ended") + "print('1')");
    const open = [tools.browser_search({ query: "held" }), size(add("open") + "time.sleep(600)")];
    const errors = (await Promise.allSettled(open)).map(({ reason }) => /restarted/.test(reason?.message));
    return [first, errors, await size("print([os.path.getsize('/mnt/data/' + f) for f in ('ended', 'open')])")].join();`;
  searches = [];
  const fields = { model: CHAT, tools: [program, webSearch, code], background: true };
  const { id } = await gateway.openai.responses.create({ ...fields, input: writing(CHAT, body) });
  await eventually(() => release);
  // Runs as the search does.
  await eventually(() => toolProcesses() > 0);
  await gateway.restart();
  const response = await ended(gateway, id);
  expect(onlyItem(response, "program_output")).toMatchObject({ status: "completed" });
  expect(onlyItem(response, "program_output").result).toMatch(/^1,true,true,\[1, [01]\]$/);
  expect(searches).toEqual(["held"]);
  const statuses = response.output.flatMap((item) => ("status" in item && "caller" in item ? [item.status] : []));
  expect(statuses).toEqual(["completed", "failed", "failed", "completed"]);
});

type Answered = { tool: Tool; type: "shell_call" | "apply_patch_call"; code: string; shown: object; output: object };
const CLIENTS: Record<string, Answered> = {
  shell: {
    tool: { type: "shell", environment: { type: "local" }, ...byPrograms } as Tool,
    type: "shell_call",
    code: `return (await tools.shell({ commands: ["ls"] })).includes("a.txt");`,
    shown: { action: { commands: ["ls"] } },
    output: {
      type: "shell_call_output",
      output: [{ stdout: "a.txt", stderr: "", outcome: { type: "exit", exit_code: 0 } }],
    },
  },
  apply_patch: {
    tool: { type: "apply_patch", ...byPrograms } as Tool,
    type: "apply_patch_call",
    code: `return (await tools.apply_patch({ type: "create_file", path: "a.txt", diff: "+a" })).includes("made");`,
    shown: { operation: { type: "create_file", path: "a.txt", diff: "+a" } },
    output: { type: "apply_patch_call_output", status: "completed", output: "made" },
  },
};

describe.each(Object.entries(CLIENTS))("%s, called by a program", (_name, client) => {
  it.each(MODELS)("of %s, is answered by the client", async (model) => {
    const fields = { model, tools: [program, client.tool] };
    const { response } = await ask(gateway, "stream", { ...fields, input: writing(model, client.code) });
    const { call_id } = onlyItem(response, "program");
    const call = onlyItem(response, client.type);
    expect(call).toMatchObject({ ...client.shown, status: "completed", call_id: `${call_id}_0` });
    expect(call).toMatchObject({ caller: { type: "program", caller_id: call_id } });
    const answer = { ...client.output, call_id: call.call_id } as ResponseInputItem;
    const next = { ...fields, previous_response_id: response.id, input: [answer] };
    const last: Response = await gateway.openai.responses.create(next);
    expect(typesIn(last)).toEqual(["program_output", "message"]);
    expect(onlyItem(last, "program_output")).toMatchObject({ status: "completed", result: "true" });
  });
});
