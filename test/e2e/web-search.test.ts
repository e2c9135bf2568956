import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Response, ResponseStreamEvent, Tool } from "openai/resources/responses/responses";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { DATE, GPT_OSS, lastMessages, lastTurns } from "./harmony-support.ts";
import { eventually, type Gateway, lastPrompt, startGateway } from "./support.ts";
import {
  ask,
  chatMessages,
  EVERY_WAY,
  itemsOfType,
  MODELS,
  onlyItem,
  REPEATER,
  scripts,
  startTools,
  type ToolServer,
  textOf,
  written,
} from "./tool-support.ts";

/** Web search: the built-in browser on a small web of its own, and an operator's browser instead. */

const SOURCES = "web_search_call.action.sources";

const search: Tool = { type: "web_search" };

/** A web of some pages, and a SearXNG that knows them. */
let web: Server;
let url: string;
/** The requests, oldest first. */
let visits: { path: string; host: string; headers: IncomingMessage["headers"] }[] = [];

const LONG = Array.from({ length: 3_000 }, (_, line) => `Line ${line} of a long page.`).join("\n");

function page(path: string): { status?: number; location?: string; type?: string; body?: string } {
  switch (path) {
    case "/guide":
      return {
        body: '<title>All about tea</title><h1>Tea</h1><p>Steep it for <b>three</b> minutes.</p><a href="/cups">Cups</a>',
      };
    case "/cups":
      return { body: "<title>Cups</title><p>A cup holds 250 ml.</p>" };
    case "/long":
      return { type: "text/plain", body: LONG };
    case "/moved":
      return { status: 302, location: "/guide" };
    case "/away":
      return { status: 302, location: `${url.replace("127.0.0.1", "localhost")}/cups` };
    case "/search":
      return {
        type: "application/json",
        body: JSON.stringify({
          results: [
            { url: `${url}/guide`, title: "All about <b>tea</b>", content: "Steep it." },
            { url: "https://elsewhere.example.org/", title: "Elsewhere", content: "Coffee." },
          ],
        }),
      };
    case "/scripts":
      return { type: "application/json", body: JSON.stringify({ results: SCRIPTS }) };
    default:
      return { status: 404, body: "Not here." };
  }
}

/** Results on hosts in several spellings. */
const SCRIPTS = ["example.org", "a.example.org", "www.example.org.", "bücher.example.net"].map((host) => ({
  url: `https://${host}/`,
  title: host,
  content: "",
}));

let gateway: Gateway;
beforeAll(async () => {
  web = createServer((request, response) => {
    const { host = "", ...headers } = request.headers;
    visits.push({ path: request.url ?? "", host, headers });
    const {
      status = 200,
      location,
      type = "text/html",
      body = "",
    } = page(request.url?.startsWith("/search?q=scripts&") ? "/scripts" : ((request.url ?? "").split("?")[0] ?? ""));
    response.writeHead(status, { "content-type": type, ...(location !== undefined && { location }) }).end(body);
  });
  await new Promise<void>((resolve) => web.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
  gateway = await startGateway({
    HARMONY_START_DATE: DATE,
    MCP_SERVERS: `${url}, ${url.replace("127.0.0.1", "localhost")}`,
    SEARXNG_URL: url,
    TOOL_SERVER_MCP_LABELS: "web_search_preview",
  });
});
afterAll(async () => {
  await gateway.close();
  web.closeAllConnections();
  web.close();
});
beforeEach(() => {
  visits = [];
});

/** The name of a built-in tool for each kind of model. */
function named(model: string, name: string): string {
  return model.startsWith(GPT_OSS) ? name : name.replace(".", "_");
}

function actionsOf(response: Pick<Response, "output">) {
  return itemsOfType(response, "web_search_call").map(({ action }) => action);
}

/** The tools' answers in the last prompt. */
async function answersTo(model: string, at = gateway): Promise<string[]> {
  if (!model.startsWith(GPT_OSS)) {
    const messages = chatMessages(lastPrompt(at));
    return messages.filter(({ role }) => role === "tool").map(({ content }) => String(content));
  }
  const answers = (await lastTurns(at)).filter((message) => message.startsWith("browser."));
  return answers.map((message) =>
    message.slice(message.indexOf("<|message|>") + "<|message|>".length).replace(/<\|end\|>$/, ""),
  );
}

/** The events of an item, its `added` and `done` with the item's status. */
function eventsOfItem(events: readonly ResponseStreamEvent[], index: number): string[] {
  return events
    .filter((event) => "output_index" in event && event.output_index === index)
    .map((event) => ("item" in event && "status" in event.item ? `${event.type}: ${event.item.status}` : event.type));
}

describe.each(EVERY_WAY)("with %s as %s,", (model, way) => {
  const browse = (input: string, fields: object = {}) =>
    ask(gateway, way, { model, tools: [search], input, ...fields });

  it("a search has the pages that it has found on request", async () => {
    const input = `Use ${named(model, "browser.search")}: \`how to make tea\``;
    const { response } = await browse(input, { include: ["web_search_call.results"] });
    expect(onlyItem(response, "web_search_call")).toMatchObject({
      action: { type: "search", query: "how to make tea" },
      results: [
        { url: `${url}/guide`, title: "All about tea", snippet: "Steep it." },
        { url: "https://elsewhere.example.org/", title: "Elsewhere", snippet: "Coffee." },
      ],
    });
    const { response: plain } = await browse(input);
    expect(onlyItem(plain, "web_search_call")).not.toHaveProperty("results");
  });

  it("a search is a call with its query, and its sources on request", async () => {
    const input = `Use ${named(model, "browser.search")}: \`how to make tea\``;
    const { response, events } = await browse(input, { include: [SOURCES] });
    expect(response.status).toBe("completed");
    const item = onlyItem(response, "web_search_call");
    expect(item).toEqual({
      id: expect.stringMatching(/^ws_/),
      type: "web_search_call",
      status: "completed",
      action: {
        type: "search",
        query: "how to make tea",
        queries: ["how to make tea"],
        sources: [
          { type: "url", url: `${url}/guide` },
          { type: "url", url: "https://elsewhere.example.org/" },
        ],
      },
    });
    expect(visits.map(({ path }) => path)).toEqual(["/search?q=how+to+make+tea&format=json"]);
    expect(response.tool_usage?.web_search).toEqual({ num_requests: 1 });
    if (way === "stream") {
      expect(eventsOfItem(events, response.output.indexOf(item))).toEqual([
        "response.output_item.added: in_progress",
        "response.web_search_call.in_progress",
        "response.web_search_call.searching",
        "response.web_search_call.completed",
        "response.output_item.done: completed",
      ]);
    }
    const { host } = new URL(url);
    const [answer] = await answersTo(model);
    expect(answer).toContain(`L4:   * 【0†All about tea†${host}】 Steep it.`);
    expect(answer).toContain("【1†Elsewhere†elsewhere.example.org】 Coffee.");

    const { response: plain } = await browse(input);
    expect(actionsOf(plain)).toEqual([{ type: "search", query: "how to make tea", queries: ["how to make tea"] }]);
  });

  it("a page is opened at its final address, and searched", async () => {
    const names = [named(model, "browser.open"), named(model, "browser.find")];
    const { response } = await browse(`Use ${names.join(" and ")}: \`${url}/moved\` \`minutes\``);
    expect(response.status).toBe("completed");
    expect(actionsOf(response)).toEqual([
      { type: "open_page", url: `${url}/guide` },
      { type: "find_in_page", pattern: "minutes", url: `${url}/guide` },
    ]);
    const [opened, found] = await answersTo(model);
    expect(opened).toMatch(/^\[0\] All about tea \(http:/);
    expect(opened).toContain("Steep it for three minutes.");
    expect(found).toMatch(/^\[1\] Find results for text: `minutes` in `All about tea`/);
    expect(visits.map(({ path }) => path)).toEqual(["/moved", "/guide"]);
  });
});

it.each(MODELS)("the browser of %s stays in the prompt if no tool may be called, and shows nothing", async (model) => {
  const input = `Use ${named(model, "browser.search")}: \`how to make tea\``;
  const getTime: Tool = { type: "function", name: "get_time", parameters: null, strict: null };
  const asked = { model, input, tools: [search, getTime] };
  const allowed = {
    type: "allowed_tools" as const,
    mode: "auto" as const,
    tools: [{ type: "function", name: "get_time" }],
  };
  const sizeOf = async (fields: object) =>
    (await gateway.openai.responses.inputTokens.count({ ...asked, ...fields })).input_tokens;
  for (const tool_choice of ["none", allowed] as const) {
    const response = await gateway.openai.responses.create({ ...asked, tool_choice });
    expect(response.output.map(({ type }) => type).filter((type) => type !== "reasoning")).toEqual(["message"]);
    expect(textOf(response)).toBe(`You said: ${input}`);
    expect(await sizeOf({ tool_choice })).toBe(await sizeOf({}));
  }
  expect(visits).toEqual([]);
});

it("gpt-oss gets the names of its tools, also built-in ones, after a call of an unknown tool", async () => {
  const input = scripts(written("nothing"), "<|channel|>final<|message|>So.<|return|>");
  await ask(gateway, "json", { model: REPEATER, tools: [search], input });
  expect((await lastTurns(gateway)).join("\n")).toContain(
    "there is no tool of this name. The tools are: browser.search, browser.open, browser.find.",
  );
});

describe.each(MODELS)("the pages of %s", (model) => {
  const browse = (input: string, fields: object = {}) =>
    ask(gateway, "json", { model, tools: [search], input, ...fields });

  it("stay known from round to round", async () => {
    const names = [named(model, "browser.search"), named(model, "browser.open")];
    const { response } = await ask(gateway, "stream", {
      model: `${model}?rounds=2`,
      tools: [search],
      // The model first opens a result of the search, then a link on the shown page.
      input: `Use ${names.join(" and ")}: \`tea\` \`{"id":0}\` \`cups\` \`{"id":0,"cursor":1}\``,
    });
    expect(actionsOf(response)).toMatchObject([
      { type: "search", query: "tea" },
      { type: "open_page", url: `${url}/guide` },
      { type: "search", query: "cups" },
      { type: "open_page", url: `${url}/cups` },
    ]);
    expect((await answersTo(model)).map((answer) => answer.slice(0, 3))).toEqual(["[0]", "[1]", "[2]", "[3]"]);
  });

  it("stay known from turn to turn", async () => {
    const first = await browse(`Use ${named(model, "browser.open")}: \`${url}/guide\``);
    const second = await browse(`Use ${named(model, "browser.find")}: \`steep\``, {
      previous_response_id: first.response.id,
    });
    expect(actionsOf(second.response)).toEqual([{ type: "find_in_page", pattern: "steep", url: `${url}/guide` }]);
    expect((await answersTo(model)).at(-1)).toMatch(/^\[1\] Find results/);
    const third = await browse(`Use ${named(model, "browser.open")}: \`{"id":0,"cursor":0}\``, {
      previous_response_id: second.response.id,
    });
    expect(actionsOf(third.response)).toEqual([{ type: "open_page", url: `${url}/cups` }]);
    expect(visits.map(({ path }) => path)).toEqual(["/guide", "/cups"]);
    const alone = await browse(`Use ${named(model, "browser.find")}: \`steep\``);
    expect(itemsOfType(alone.response, "web_search_call")).toMatchObject([{ status: "failed" }]);
    expect(await answersTo(model)).toEqual(["No pages to access!"]);
  });

  it("are fetched again when they were too long for the cache", async () => {
    const first = await browse(`Use ${named(model, "browser.open")}: \`${url}/long\` \`${url}/guide\``, {
      model: `${model}?rounds=2`,
    });
    expect(actionsOf(first.response)).toHaveLength(2);
    const { response } = await browse(`Use ${named(model, "browser.find")}: \`{"pattern":"line 2345","cursor":0}\``, {
      previous_response_id: first.response.id,
    });
    expect(actionsOf(response)).toEqual([{ type: "find_in_page", pattern: "line 2345", url: `${url}/long` }]);
    expect((await answersTo(model)).at(-1)).toContain("Line 2345 of a long page.");
    expect(visits.map(({ path }) => path)).toEqual(["/long", "/guide", "/long"]);
  });

  it("cannot all be opened, and the model gets the reason", async () => {
    const { response } = await browse(`Use ${named(model, "browser.open")}: \`${url}/nowhere\``);
    expect(response.status).toBe("completed");
    expect(onlyItem(response, "web_search_call")).toMatchObject({
      status: "failed",
      action: { type: "open_page", url: `${url}/nowhere` },
    });
    expect(textOf(response)).toContain(`Error fetching URL \`${url}/nowhere\`: HTTP 404`);
  });

  it("are requested without anything that names the client", async () => {
    await browse(`Use ${named(model, "browser.open")}: \`${url}/guide\``);
    const [visit] = visits;
    expect(Object.keys(visit?.headers ?? {})).not.toEqual(expect.arrayContaining(["authorization"]));
    expect(visit?.headers).toMatchObject({ "user-agent": expect.stringContaining("responses-edge") });
    expect(JSON.stringify(visit?.headers)).not.toContain("any");
  });

  it("are not opened without access to the web: the model gets only the search results", async () => {
    const tools = [
      {
        type: "web_search",
        external_web_access: false,
        search_content_types: ["text", "image"],
        image_settings: { a: 1 },
      },
    ] as unknown as Tool[];
    const names = [named(model, "browser.search"), named(model, "browser.open")];
    const { response } = await browse(`Use ${names.join(" and ")}: \`tea\` \`{"id":0}\``, { tools });
    expect(response.status).toBe("completed");
    expect(response.tools).toEqual(tools);
    expect(itemsOfType(response, "web_search_call").map(({ status }) => status)).toEqual(["completed", "failed"]);
    expect((await answersTo(model)).at(-1)).toContain("This request allows no access to live pages");
    expect(visits.map(({ path }) => path)).toEqual(["/search?q=tea&format=json"]);
  });

  it("are only those of allowed domains", async () => {
    const only = (...allowed_domains: string[]) => ({
      tools: [{ type: "web_search", filters: { allowed_domains } }],
      include: [SOURCES],
    });
    const searched = await browse(`Use ${named(model, "browser.search")}: \`tea\``, only("Example.org"));
    expect(actionsOf(searched.response)).toMatchObject([
      { sources: [{ type: "url", url: "https://elsewhere.example.org/" }] },
    ]);
    expect((await answersTo(model))[0]).not.toContain("All about tea");

    visits = [];
    const refused = await browse(`Use ${named(model, "browser.open")}: \`${url}/guide\``, only("example.org"));
    expect(itemsOfType(refused.response, "web_search_call")).toMatchObject([{ status: "failed" }]);
    expect((await answersTo(model))[0]).toContain("only pages of certain domains");
    const led = await browse(`Use ${named(model, "browser.open")}: \`${url}/away\``, only("127.0.0.1"));
    expect(itemsOfType(led.response, "web_search_call")).toMatchObject([{ status: "failed" }]);
    expect(visits.map(({ path }) => path)).toEqual(["/away"]);
    const free = await browse(`Use ${named(model, "browser.open")}: \`${url}/away\``);
    expect(actionsOf(free.response)).toEqual([
      { type: "open_page", url: `${url.replace("127.0.0.1", "localhost")}/cups` },
    ]);
  });

  it("may be restricted by patterns, and by domains in other spellings and scripts", async () => {
    const found = async (filters: object) => {
      const tools = [{ type: "web_search", filters }] as unknown as Tool[];
      const { response } = await browse(`Use ${named(model, "browser.search")}: \`scripts\``, {
        tools,
        include: [SOURCES],
      });
      const [action] = actionsOf(response) as { sources?: { url: string }[] }[];
      return action?.sources?.map(({ url: each }) => new URL(each).hostname);
    };
    const all = ["example.org", "a.example.org", "www.example.org.", "xn--bcher-kva.example.net"];
    expect(await found({})).toEqual(all);
    expect(await found({ allowed_domains: ["*.example.org"] })).toEqual(["a.example.org", "www.example.org."]);
    expect(await found({ allowed_domains: ["EXAMPLE.org."] })).toEqual(all.slice(0, 3));
    expect(await found({ allowed_domains: ["bücher.example.net"] })).toEqual(all.slice(3));
    expect(await found({ blocked_domains: ["www.example.org", "*.Example.net"] })).toEqual(all.slice(0, 2));
    expect(await found({ blocked_domains: ["bücher.example.net", "example.org"] })).toEqual([]);
  });

  it("are available under the tool's other names, too", async () => {
    const input = `Use ${named(model, "browser.open")}: \`${url}/cups\``;
    const tools: Tool[] = [
      { type: "web_search_preview" },
      { type: "mcp", server_label: "web_search_preview", server_url: "http://127.0.0.1:1/nobody" },
    ];
    for (const tool of tools) {
      const { response } = await browse(input, { tools: [tool] });
      expect(actionsOf(response)).toEqual([{ type: "open_page", url: `${url}/cups` }]);
      expect(response.output.some(({ type }) => type.startsWith("mcp"))).toBe(false);
    }
  });
});

describe("without a search provider", () => {
  let bare: Gateway;
  beforeAll(async () => {
    bare = await startGateway({ HARMONY_START_DATE: DATE, MCP_SERVERS: url });
  });
  afterAll(() => bare.close());

  it.each(MODELS)("%s is offered only to open and to find", async (model) => {
    const input = `Use ${named(model, "browser.open")}: \`${url}/guide\``;
    const { response } = await ask(bare, "json", { model, tools: [search], input });
    expect(actionsOf(response)).toEqual([{ type: "open_page", url: `${url}/guide` }]);
    if (model === GPT_OSS) {
      const [system] = await lastMessages(bare);
      expect(system).toMatch(/## browser[\s\S]*type open = [\s\S]*type find = /);
      expect(system).not.toContain("type search =");
    } else {
      expect(lastPrompt(bare).tools).toMatchObject([
        { function: { name: "browser_open", description: expect.stringContaining("【{cursor}†L{line_start}") } },
        { function: { name: "browser_find" } },
      ]);
    }
  });
});

describe("an operator's browser", () => {
  let operators: ToolServer;
  let remote: Gateway;
  beforeAll(async () => {
    const properties = { query: { type: "string" } };
    operators = await startTools({
      search: { properties, run: ({ query }) => `[0] Results for ${query}` },
      open: {
        run: ({ id }) => {
          if (id === "broken") throw new Error("The page is broken.");
          return `[1] Page ${id}`;
        },
      },
      find: { run: ({ pattern }) => `[2] Matches of ${pattern}` },
      cleanup_session: { run: () => "bye" },
    });
    remote = await startGateway({
      HARMONY_START_DATE: DATE,
      TOOL_SERVERS: JSON.stringify({ browser: operators.url }),
    });
  });
  afterAll(async () => {
    await remote.close();
    await operators.close();
  });

  it.each(EVERY_WAY)("is called over MCP for %s as %s", async (model, way) => {
    const names = ["search", "open", "find"].map((name) => named(model, `browser.${name}`));
    const before = operators.calls.length;
    const input = `Use ${names.join(", ")}: \`tea\` \`7\` \`hot\``;
    const { response } = await ask(remote, way, { model, tools: [search], input });
    expect(response.status).toBe("completed");
    expect(itemsOfType(response, "web_search_call")).toMatchObject([
      { status: "completed", action: { type: "search", query: "tea" } },
      { status: "completed", action: { type: "open_page" } },
      { status: "completed", action: { type: "find_in_page", pattern: "hot" } },
    ]);
    expect(await answersTo(model, remote)).toEqual(["[0] Results for tea", "[1] Page 7", "[2] Matches of hot"]);
    const calls = await eventually(() => {
      const made = operators.calls.slice(before);
      return made.at(-1)?.name === "cleanup_session" ? made : undefined;
    });
    expect(calls.map(({ name }) => name).toSorted()).toEqual(["cleanup_session", "find", "open", "search"]);
    const sessions = new Set(calls.map(({ headers }) => headers["x-session-id"]));
    expect(sessions.size).toBe(1);
    expect([...sessions][0]).toMatch(/^[0-9a-f]{32}$/);
  });

  it.each(MODELS)("may fail, and %s is told", async (model) => {
    const { response } = await ask(remote, "stream", {
      model,
      tools: [search],
      input: `Use ${named(model, "browser.open")}: \`broken\``,
    });
    expect(response.status).toBe("completed");
    expect(onlyItem(response, "web_search_call")).toMatchObject({
      status: "failed",
      action: { type: "open_page", url: "broken" },
    });
    expect(textOf(response)).toContain("The page is broken.");
  });
});
