import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { startScripted } from "../e2e/scripted-vllm.ts";
import { eventually, lastPrompt } from "../e2e/support.ts";
import { type McpTestServer, startMcpServer } from "../tools/mcp-server.ts";
import { root } from "../workerd/tools.ts";
import {
  type ConsoleRig,
  expectAccessible,
  expectUsable,
  KEY,
  KEYED,
  LOOKS,
  OTHER_KEY,
  openTab,
  ROOT_KEY,
  signIn,
  startConsole,
  type Tab,
} from "./support.ts";

/** The views Chat and Responses, as users see them. */

let rig: ConsoleRig;
let tools: McpTestServer;
beforeAll(async () => {
  tools = await startMcpServer();
  rig = await startConsole({ ...KEYED, MCP_SERVERS: tools.url, EVENT_LOG_INTERVAL_MS: "50", HEARTBEAT_MS: "300" });
});
afterAll(async () => {
  await rig.close();
  await tools.close();
});
beforeEach(() => rig.gateway.vllm.simulator.clear());

/** A signed-in tab at Try. The test must leave it clean. */
async function trying(use: (page: Page, tab: Tab) => Promise<void>, expected: string[] = []): Promise<void> {
  const tab = await rig.openSignedIn(KEY, "#/chat");
  await tab.page.locator("#input").waitFor();
  await use(tab.page, tab);
  tab.expectClean(expected);
  await tab.close();
}

async function ask(page: Page, text: string): Promise<void> {
  await page.getByLabel("Input", { exact: true }).fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
}

/** Sets fields that have no control of their own, such as a model's name with the simulator's settings. */
async function further(page: Page, fields: object): Promise<void> {
  const field = page.getByLabel("Further fields (JSON)");
  if (!(await field.isVisible())) await page.locator(".settings summary", { hasText: "More" }).click();
  await field.fill(JSON.stringify(fields));
}

const choose = (page: Page, transport: string) => page.getByLabel("Transport").selectOption({ label: transport });
const answers = (page: Page) => page.locator(".item-answer");
const release = () => {
  for (const request of rig.gateway.vllm.simulator.requests) request.release();
};

describe("an answer", () => {
  it.each(["Background", "Stream", "WebSocket"])("appears while it streams: %s", (transport) =>
    trying(async (page) => {
      await choose(page, transport);
      await further(page, { model: "simulator?fault=stall:2" });
      await ask(page, "one two three");
      await answers(page).getByText(/^You/).waitFor();
      expect(await answers(page).textContent()).not.toContain("three");
      release();
      await page.getByText("You said: one two three", { exact: true }).waitFor();
      await page.getByText("completed", { exact: true }).waitFor();
      expect(await page.getByRole("status").textContent()).toBe("Answer: You said: one two three");
    }),
  );

  it("can be requested with the keyboard alone", () =>
    trying(async (page) => {
      expect(await page.evaluate("document.activeElement.id")).toBe("input");
      await page.keyboard.type("hello");
      await page.keyboard.press("Control+Enter");
      await answers(page).getByText("You said: hello").waitFor();
    }));

  it("arrives as a whole, with the settings of the form", () =>
    trying(async (page) => {
      await choose(page, "No streaming");
      await page.getByLabel("Model", { exact: true }).selectOption("simulator-reasoning");
      await page.getByLabel("Instructions").fill("Be brief.");
      await page.getByLabel("Reasoning effort").selectOption("high");
      await page.getByLabel("Output", { exact: true }).selectOption("json_schema");
      await page.getByRole("button", { name: "Put in an example" }).first().click();
      await ask(page, "hello");
      await answers(page).getByText('{"answer":"answer"}').waitFor();
      await page.getByText("Reasoning", { exact: true }).click();
      await page.getByText("I should answer with effort high.").waitFor();
      expect(lastPrompt(rig.gateway)).toMatchObject({ messages: [{ role: "system", content: "Be brief." }, {}] });
    }));
});

describe("a request that was sent", () => {
  it("is code in four languages, and its response has a link", () =>
    trying(async (page) => {
      await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
      await ask(page, "It's `code`");
      await page.getByText("completed", { exact: true }).waitFor();
      await page.getByRole("button", { name: "As code" }).click();
      for (const language of ["curl", "Python", "TypeScript", "Go"]) {
        await page.getByRole("button", { name: language, exact: true }).click();
        const code = (await page.locator(".turn .code-samples pre").textContent()) ?? "";
        expect(code).toContain("OPENAI_API_KEY");
        expect(code).not.toContain(KEY);
        expect(code).toMatch(/It'(?:\\'')?s/);
      }
      await page.getByRole("link", { name: "Details", exact: true }).click();
      await page.getByRole("button", { name: "Copy link" }).click();
      const link = await page.evaluate(() => navigator.clipboard.readText());
      expect(link).toBe(page.url());
    }));
});

it("belongs to its tab, but tabs share presets of model, instructions, tools and parameters", () =>
  trying(async (page, tab) => {
    const instructions = (of: Page) => of.getByLabel("Instructions");
    await instructions(page).fill("Be brief.");
    await page.getByLabel("Model", { exact: true }).selectOption("simulator-reasoning");
    await page.locator("summary", { hasText: "Tools" }).click();
    await page.getByRole("button", { name: "Add a function" }).click();
    await page.getByLabel("Name", { exact: true }).fill("get_weather");
    await page.getByRole("button", { name: "Add a parameter" }).click();
    await page.getByLabel("Parameter's name").fill("city");
    await page.getByLabel("required").check();
    await page.locator(".settings summary", { hasText: "More" }).click();
    await page.getByLabel("Top p").fill("0.9");
    await page.getByLabel("Tool choice").fill("auto");
    await page.getByRole("button", { name: "Save as a preset" }).click();
    await page.getByRole("dialog").getByLabel("Name").fill("Brief");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByLabel("Preset").waitFor();
    await page.getByLabel("Input", { exact: true }).fill("in the first tab");
    const other = await tab.page.context().newPage();
    await other.goto(page.url());
    await other.getByLabel("Preset").selectOption("Brief");
    expect(await instructions(other).inputValue()).toBe("Be brief.");
    expect(await other.getByLabel("Model", { exact: true }).inputValue()).toBe("simulator-reasoning");
    expect(await other.getByLabel("Input", { exact: true }).inputValue()).toBe("");
    await ask(other, "in the second tab");
    await answers(other).getByText("You said: in the second tab").waitFor();
    expect(lastPrompt(rig.gateway)).toMatchObject({
      top_p: 0.9,
      tool_choice: "auto",
      tools: [
        {
          function: {
            name: "get_weather",
            parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
          },
        },
      ],
    });
    await ask(page, "in the first tab");
    await answers(page).getByText("You said: in the first tab").waitFor();
    expect([await page.locator(".turn").count(), await other.locator(".turn").count()]).toEqual([1, 1]);
    await other.getByRole("button", { name: "Delete the preset" }).click();
    await other.getByRole("button", { name: "Delete", exact: true }).click();
    await other.getByLabel("Preset").waitFor({ state: "detached" });
  }));

it("offers only the hosted tools that the deployment has what they need for", () =>
  trying(async (page) => {
    await page.locator("summary", { hasText: "Tools" }).click();
    await page.getByRole("button", { name: "Add an MCP server" }).waitFor();
    expect(await page.getByText("Run by this server").count()).toBe(0);
  }));

/** A proxy before the gateway that can break off, as a failing network does. */
async function startNetwork() {
  const { hostname, port } = new URL(rig.gateway.url);
  const sockets = new Set<Socket>();
  let isGone = false;
  const server = createServer((socket) => {
    if (isGone) return socket.destroy();
    const onward = connect(Number(port), hostname);
    for (const [one, other] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      sockets.add(one);
      one.on("error", () => {}).on("close", () => other.destroy());
      one.pipe(other);
    }
    return socket;
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    set isGone(gone: boolean) {
      isGone = gone;
      if (gone) for (const socket of sockets) socket.destroy();
    },
    close: () => server.close(),
  };
}

it("survives a network failure in mid-stream: the answer continues at the same token", async () => {
  const network = await startNetwork();
  const { page, expectClean, close } = await openTab(rig.browser, network.url, "#/chat", {}, KEY);
  await further(page, { model: "simulator?fault=stall:3" });
  await ask(page, "one two three four");
  await answers(page).getByText(/^You/).waitFor();
  network.isGone = true;
  // The page tries again, without success.
  await page.waitForEvent("requestfailed", (request) => request.url().includes("starting_after="));
  network.isGone = false;
  release();
  await answers(page).getByText("You said: one two three four", { exact: true }).waitFor();
  await page.getByText("completed", { exact: true }).waitFor();
  expectClean(["ERR_", "network error"]);
  await close();
  network.close();
});

describe("stopping", () => {
  it.each(["Background", "Stream", "WebSocket"])("ends the generation: %s", (transport) =>
    trying(
      async (page) => {
        await choose(page, transport);
        await further(page, { model: "simulator?fault=stall:2&words=50" });
        await ask(page, "count");
        await answers(page).waitFor();
        await page.getByRole("button", { name: "Stop" }).click();
        await page.getByRole("button", { name: "Send", exact: true }).waitFor();
        await eventually(() => rig.gateway.vllm.simulator.requests.some(({ state }) => state === "aborted"));
        await page.getByText("cancelled", { exact: true }).waitFor();
      },
      ["WebSocket", "404"],
    ),
  );
});

describe("a reload in mid-stream", () => {
  it("continues the answer without losing or repeating a token", () =>
    trying(async (page) => {
      await further(page, { model: "simulator?fault=stall:3" });
      const words = Array.from({ length: 40 }, (_, at) => `word-${at}`).join(" ");
      await ask(page, words);
      await answers(page).waitFor();
      await page.reload();
      await page.getByRole("button", { name: "Stop" }).waitFor();
      await answers(page).waitFor();
      release();
      await page.getByText("completed", { exact: true }).waitFor();
      await answers(page).getByText(`You said: ${words}`, { exact: true }).waitFor();
      // The ended turns and the settings are there again, too.
      await page.reload();
      await page.getByText("completed", { exact: true }).waitFor();
      expect(await answers(page).count()).toBe(1);
      expect(await page.getByLabel("Further fields (JSON)").inputValue()).toContain("stall:3");
    }));

  it.each([
    ["Stream", "The page was left before the response had ended"],
    ["WebSocket", "The page was left before the response had ended"],
    ["No streaming", "The page was left before the server had answered"],
  ])("shows the end of a response that does not continue, also after another reload: %s", (transport, said) =>
    trying(
      async (page) => {
        await choose(page, transport);
        await further(page, { model: "simulator?fault=stall:3&words=40" });
        await ask(page, "count");
        await eventually(() => rig.gateway.vllm.simulator.requests[0]);
        if (transport !== "No streaming") await answers(page).waitFor();
        for (const _ of ["once", "twice"]) {
          await page.reload();
          await page.getByText(said).waitFor();
          if (transport === "No streaming") continue;
          await answers(page).waitFor();
          await page.getByText("cancelled", { exact: true }).waitFor();
        }
        await page.getByRole("button", { name: "Send", exact: true }).waitFor();
      },
      ["404"],
    ),
  );

  it("says that a response without storage is lost", () =>
    trying(async (page) => {
      await choose(page, "Stream");
      await further(page, { model: "simulator?fault=stall:3&words=40" });
      await page.getByLabel("Store the response").uncheck();
      await ask(page, "count");
      await answers(page).waitFor();
      await page.reload();
      await page.getByText("This response was not stored: it was shown only once.").waitFor();
      await page.getByText("The model will not see this turn").waitFor();
    }));

  it("shows again why a first turn failed, and lets the user start again", () =>
    trying(
      async (page) => {
        await further(page, { top_p: 7 });
        await ask(page, "hello");
        await page.getByRole("alert").getByText("(top_p)").waitFor();
        await page.reload();
        await page.getByRole("alert").getByText("(top_p)").waitFor();
        await page.getByRole("button", { name: "New chat" }).click();
        expect(await page.locator(".turn").count()).toBe(0);
        await page.reload();
        await page.locator("#input").waitFor();
        expect(await page.locator(".turn").count()).toBe(0);
      },
      ["400"],
    ));
});

describe("tools", () => {
  it("a function's call is shown with its arguments, and its output typed in", () =>
    trying(async (page) => {
      await page.locator("summary", { hasText: "Tools" }).click();
      await page.getByRole("button", { name: "Put in an example" }).first().click();
      await ask(page, "Use get_weather.");
      const call = page.locator(".item-call");
      await call.getByText("get_weather").waitFor();
      await call.getByText('"city": "city"').waitFor();
      await page.getByLabel("Output of get_weather").fill("sunny");
      await page.getByLabel("Input", { exact: true }).fill("for later");
      await page.getByRole("button", { name: "Send output" }).click();
      await answers(page).getByText("The tool get_weather returned: sunny").waitFor();
      expect(await page.getByLabel("Output of get_weather").count()).toBe(0);
      // Another output, beside this one.
      await page.getByText("What if a tool had answered otherwise?").click();
      await page.getByLabel("Other output").fill("rainy");
      await page.getByRole("button", { name: "Answer beside this one" }).click();
      await answers(page).getByText("The tool get_weather returned: rainy").waitFor();
      await answers(page).getByText("The tool get_weather returned: sunny").waitFor();
      expect(await page.getByLabel("Input", { exact: true }).inputValue()).toBe("for later");
    }));

  it("an MCP server's call waits for approval, and is shown with its output", () =>
    trying(async (page) => {
      await page.locator("summary", { hasText: "Tools" }).click();
      await page.getByRole("button", { name: "Add an MCP server" }).click();
      await page.getByLabel("Label", { exact: true }).fill("notes");
      await page.getByLabel("URL", { exact: true }).fill(tools.url);
      await page.getByLabel("Token", { exact: true }).fill("token-of-notes");
      await ask(page, "Use notes__echo.");
      await page.getByRole("button", { name: "Approve" }).click();
      await page.locator(".item-call", { hasText: "Output" }).waitFor();
      await answers(page)
        .getByText(/The tool notes__echo returned:/)
        .waitFor();
      // Secrets that others could use stay in this page.
      expect(await page.evaluate("JSON.stringify(sessionStorage)")).not.toContain("token-of-notes");
    }));
});

describe("input", () => {
  const PIXEL = Buffer.from(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "base64",
  );

  it("may contain an image and a file", () =>
    trying(async (page) => {
      await page.getByLabel("Attach").setInputFiles([
        { name: "pixel.png", mimeType: "image/png", buffer: PIXEL },
        { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("the notes") },
        { name: "wrong.txt", mimeType: "text/plain", buffer: Buffer.from("not this") },
      ]);
      await page.getByRole("button", { name: "Remove wrong.txt" }).click();
      await ask(page, "What is this?");
      await page.getByText("completed", { exact: true }).waitFor();
      const prompt = JSON.stringify(lastPrompt(rig.gateway));
      expect(prompt).toContain(PIXEL.toString("base64"));
      expect(prompt).toContain("the notes");
      expect(prompt).not.toContain("not this");
      expect(await page.locator(".item-input img").evaluate((image) => (image as HTMLImageElement).naturalWidth)).toBe(
        1,
      );
      expect(await page.locator(".attachments li").count()).toBe(0);
    }));

  it("with an invalid field sends nothing and names the field", () =>
    trying(async (page) => {
      await page.locator("summary", { hasText: "Tools" }).click();
      await page.getByRole("button", { name: "Functions as JSON" }).click();
      await page.getByLabel("Functions (JSON)").fill("{nonsense");
      await ask(page, "hello");
      await page.getByText("This is no JSON").waitFor();
      expect(await page.locator(":focus").getAttribute("id")).toBe("settings-functions");
      expect(await page.locator(".turn").count()).toBe(0);
    }));

  it("stays in the form after a refusal, with the server's message", () =>
    trying(
      async (page) => {
        await further(page, { top_p: 7 });
        await ask(page, "hello");
        await page.getByRole("alert").getByText("(top_p)").waitFor();
        expect(await page.getByLabel("Input", { exact: true }).inputValue()).toBe("hello");
      },
      ["400"],
    ));
});

describe("hostile content", () => {
  it("of a model is shown as text", () =>
    trying(async (page) => {
      const attack = `<script>window.taken = 1</script><img src="https://evil.example.com/x" onerror="window.taken = 1"><b>bold</b>`;
      await ask(page, attack);
      await answers(page).getByText(`You said: ${attack}`).waitFor();
      expect(await page.locator(".transcript :is(script, img, b)").count()).toBe(0);
      expect(await page.evaluate("window.taken")).toBeUndefined();
    }));

  it("of items puts no markup, no script URL and no other host's image onto the page", () =>
    trying(async (page) => {
      const html = "<img src=x onerror=window.taken=1>";
      const url = "javascript:window.taken=1";
      const annotations = [{ type: "url_citation", url, title: html }];
      const items = [
        { type: "message", role: html, status: html, content: [{ type: "output_text", text: html, annotations }] },
        {
          type: "message",
          role: "user",
          content: [{ type: "input_image", image_url: "https://evil.example.com/x.png" }],
        },
        { type: "message", role: "user", content: [{ type: "input_image", image_url: url }, { type: html }, null, 7] },
        { type: "reasoning", summary: [{ text: html }], content: [{ text: html }], encrypted_content: html },
        { type: "function_call", name: html, arguments: html, namespace: html },
        { type: "function_call_output", call_id: html, output: [{ type: "input_text", text: html }] },
        { type: "mcp_call", server_label: html, name: html, arguments: html, output: html, error: { message: html } },
        { type: "mcp_list_tools", server_label: html, tools: [{ name: html, description: html }], error: html },
        { type: "web_search_call", action: { type: "search", query: html, sources: [{ url }] } },
        { type: "code_interpreter_call", code: html, outputs: [{ type: "logs", logs: html }, { type: html }] },
        { type: html, content: html },
        { type: "constructor" },
        {},
      ];
      // The page's script, with the view of an item as its export.
      const contents = 'import "./main.ts"; export { ItemView } from "./item-view.ts";';
      const stdin = { contents, resolveDir: join(root, "packages/console/src") };
      const { outputFiles } = await build({ stdin, bundle: true, format: "esm", write: false });
      const script = { body: outputFiles[0]?.text ?? "", contentType: "text/javascript" };
      await page.route("**/first.js", (route) => route.fulfill(script));
      await page.reload();
      await page.locator("#input").waitFor();
      const views = await page.evaluateHandle<{ ItemView: new (item: object) => { element: HTMLElement } }>(
        'import(document.querySelector("script[src]").src)',
      );
      const found = await views.evaluate(async ({ ItemView }, given) => {
        const holder = document.createElement("div");
        document.body.append(holder);
        for (const item of given) holder.append(new ItemView(item).element);
        await new Promise((resolve) => requestAnimationFrame(resolve));
        const made = [...holder.querySelectorAll("img, script, a, iframe, object, [onerror]")].map(
          (each) => each.outerHTML,
        );
        const shown = holder.textContent?.split("onerror").length ?? 0;
        holder.remove();
        return { made, shown };
      }, items);
      expect(found.made).toEqual([]);
      expect(found.shown).toBeGreaterThan(20);
      expect(await page.evaluate("window.taken")).toBeUndefined();
    }));

  it("of 5 MB on one line leaves the page usable, and is complete", async () => {
    const line = Array.from({ length: 500_000 }, (_, at) => String(at).padStart(10, "0")).join("");
    const scripted = await startScripted();
    const chunk = { id: "x", object: "chat.completion.chunk", created: 1, model: "long" };
    scripted.replies({
      events: [
        { ...chunk, choices: [{ index: 0, delta: { role: "assistant", content: "" } }] },
        ...Array.from({ length: 5 }, (_, at) => ({
          ...chunk,
          choices: [{ index: 0, delta: { content: line.slice(at * 1_000_000, (at + 1) * 1_000_000) } }],
        })),
        { ...chunk, choices: [{ index: 0, delta: {}, finish_reason: "stop" }] },
      ],
    });
    const { page, expectClean, close } = await openTab(rig.browser, scripted.url, "#/chat");
    await ask(page, "go");
    await page.getByText("completed", { exact: true }).waitFor();
    await page.getByText("20,000 of 5,000,000 characters shown.").waitFor();
    await page.getByRole("button", { name: "Show 100,000 more" }).click();
    await page.getByText("120,000 of 5,000,000 characters shown.").waitFor();
    const saving = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save all" }).click();
    expect(readFileSync(await (await saving).path(), "utf8")).toBe(line);
    // The events and the JSON are complete, too.
    await page.getByRole("link", { name: "Details", exact: true }).last().click();
    await page.locator("summary", { hasText: "response.completed" }).click();
    await page.locator("summary", { hasText: "JSON" }).click();
    await page
      .getByText(/characters shown/)
      .nth(2)
      .waitFor();
    expectClean();
    await close();
    await scripted.close();
  });
});

it("revocation of a key in mid-stream makes the next request ask for another key, without losing input", async () => {
  const admin = (path: string, body: object) =>
    fetch(`${rig.gateway.url}/v1/admin/keys${path}`, {
      method: "POST",
      headers: { authorization: `Bearer ${ROOT_KEY}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    }).then((answer) => answer.json() as Promise<{ id: string; value: string }>);
  const { id, value } = await admin("", { tenant: "acme" });
  const { page, expectClean, close } = await rig.openSignedIn(value, "#/chat");
  await choose(page, "Stream");
  await further(page, { model: "simulator?fault=stall:2" });
  await ask(page, "one two three");
  await answers(page).waitFor();
  await admin(`/${id}`, { disabled: true });
  await eventually(async () => {
    const headers = { authorization: `Bearer ${value}` };
    return (await fetch(`${rig.gateway.url}/v1/models`, { headers })).status === 401;
  });
  // The response began before the revocation, so it goes on to its end.
  release();
  await answers(page).getByText("You said: one two three", { exact: true }).waitFor();
  await page.getByText("completed", { exact: true }).waitFor();
  await further(page, {});
  await ask(page, "a long question");
  await page.getByText("The server does not accept this key any more").waitFor();
  await expectAccessible(page);
  await signIn(page, KEY);
  expect(await page.getByLabel("Input", { exact: true }).inputValue()).toBe("a long question");
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await answers(page).getByText("You said: a long question").waitFor();
  expectClean(["401"]);
  await close();
});

it("a background response and its view survive a dead server and a refused key", async () => {
  const { page, expectClean, close } = await rig.openSignedIn(KEY, "#/chat");
  await further(page, { model: "simulator?fault=stall:3" });
  await ask(page, "one two three four five six");
  await answers(page).waitFor();
  let isRefused = true;
  await page.route(/starting_after=/, (route) => {
    if (!isRefused) return route.continue();
    const error = { message: "Incorrect API key provided.", code: "invalid_api_key", param: null };
    return route.fulfill({ status: 401, json: { error } });
  });
  await rig.worker.restart();
  await page.getByText("The server does not accept this key any more").waitFor();
  isRefused = false;
  await signIn(page, KEY);
  // The resumed run sends the model server another request.
  await eventually(() => {
    release();
    return page.getByText("completed", { exact: true }).isVisible();
  });
  await answers(page).getByText("You said: one two three four five six", { exact: true }).waitFor();
  expectClean(["401", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_REFUSED", "network error"]);
  await close();
});

describe("the same as code", () => {
  const run = promisify(execFile);

  it("does the same as the form, and names the key's variable instead of the key", () =>
    trying(async (page) => {
      await choose(page, "No streaming");
      const text = `It's "quoted", $HOME, \`ticks\`, \\ and ${"é".repeat(3)}`;
      await page.getByLabel("Instructions").fill("Don't.");
      await page.getByLabel("Input", { exact: true }).fill(text);
      await page.getByLabel("Export", { exact: true }).click();
      await page.locator("summary", { hasText: "The next request as code" }).click();
      const sample = async (language: string) => {
        await page.getByRole("button", { name: language }).click();
        const code = (await page.locator(".code-samples pre").textContent()) ?? "";
        expect(code).not.toContain(KEY);
        expect(code).toContain("OPENAI_API_KEY");
        return code;
      };
      const env = { ...process.env, OPENAI_API_KEY: KEY };
      const shell = await run("sh", ["-c", await sample("curl")], { env });
      expect(JSON.parse(shell.stdout)).toMatchObject({ output: [{ content: [{ text: `You said: ${text}` }] }] });
      const script = ["--input-type=module-typescript", "-e", await sample("TypeScript")];
      const { stdout } = await run(process.execPath, script, { env, cwd: process.cwd() });
      expect(stdout).toBe(`You said: ${text}\n`);
      const python = await sample("Python");
      expect(python).toContain(`"input": ${JSON.stringify(text)}`);
    }));
});

describe("Details", () => {
  /** Creates a response with raw messages, and gives its id. */
  async function made(): Promise<string> {
    const answer = await rig.gateway.post(
      { model: "simulator-gpt-oss", input: "hello", background: true, stream: true, enable_response_messages: true },
      { authorization: `Bearer ${KEY}` },
    );
    return /"id":"(resp_\w+)"/.exec(await answer.text())?.[1] ?? "";
  }

  it("shows the items, events, figures and raw messages of a response that this page has not received", async () => {
    const id = await made();
    const { page, expectClean, close } = await rig.openSignedIn(KEY, `#/responses/${id}`);
    await page.getByText("You said: hello").first().waitFor();
    await page.getByText("Input tokens").waitFor();
    const last = page.locator("summary", { hasText: "response.completed" });
    await last.click();
    await page.getByText('"type": "response.completed"').waitFor();
    await page.locator("summary", { hasText: "response.output_text.delta" }).click();
    await page.getByText('" hello"', { exact: true }).waitFor();
    const raw = page.locator("section", { has: page.getByRole("heading", { name: "Raw messages" }) });
    await raw.getByText("analysis", { exact: true }).waitFor();
    await page.locator(".item-reasoning summary").click();
    await page.getByRole("link", { name: "Branch from here" }).click();
    await page.locator(".transcript").getByText("You said: hello", { exact: true }).waitFor();
    expect(new URL(page.url()).hash).toBe(`#/chat/${id}`);
    expectClean();
    await close();
  });

  it("says which part of its prompt a compared response did not have", async () => {
    const post = async (body: object) => {
      const answer = await rig.gateway.post({ model: "simulator", ...body }, { authorization: `Bearer ${KEY}` });
      return ((await answer.json()) as { id: string }).id;
    };
    const first = await post({ input: "One", instructions: "It is noon." });
    const options = { comparison_response_id: first };
    const id = await post({
      ...{ input: "Two", instructions: "It is one.", previous_response_id: first, prompt_cache_options: options },
    });
    const { page, expectClean, close } = await rig.openSignedIn(KEY, `#/responses/${id}`);
    await page.getByText("Prompt cache").waitFor();
    const figures = page.locator("dl.figures div").filter({ hasText: "Prompt cache" });
    expect(await figures.textContent()).toMatch(/differs from message 1 \(system\) on: \d+ tokens were computed again/);
    expectClean();
    await close();
  });

  it("shows long input in pages, also after a visit to another view", async () => {
    const input = Array.from({ length: 150 }, (_, at) => ({ role: "user", content: `number ${at}.` }));
    const answer = await rig.gateway.post({ model: "simulator", input }, { authorization: `Bearer ${KEY}` });
    const { id } = (await answer.json()) as { id: string };
    const { page, expectClean, close } = await rig.openSignedIn(KEY, `#/responses/${id}`);
    await page.getByText("number 99.", { exact: true }).waitFor();
    await page.getByText("Only background responses have an event log.").waitFor();
    await page.getByRole("link", { name: "Chat", exact: true }).click();
    await page.locator("#input").waitFor();
    await page.goBack();
    await page.getByRole("button", { name: "Show more" }).click();
    await page.getByText("number 149.", { exact: true }).waitFor();
    expect(await page.locator(".item-input").count()).toBe(150);
    expectClean();
    await close();
  });

  it("never shows another tenant's response", async () => {
    const id = await made();
    const { page, expectClean, close } = await rig.openSignedIn(OTHER_KEY, `#/responses/${id}`);
    await page.getByText(`There is no response ${id}`).waitFor();
    expectClean(["404"]);
    await close();
  });

  it("follows a running response, and cancels it", async () => {
    const answer = await rig.gateway.post(
      { model: "simulator?fault=stall:2&words=50", input: "count", background: true },
      { authorization: `Bearer ${KEY}` },
    );
    const { id } = (await answer.json()) as { id: string };
    const { page, expectClean, close } = await rig.openSignedIn(KEY, `#/responses/${id}`);
    await answers(page).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByText("cancelled", { exact: true }).waitFor();
    expectClean();
    await close();
  });

  it.each(LOOKS)("and Chat are accessible, and fit the screen: %s", async (_, options) => {
    const id = await made();
    const { page, close } = await rig.openSignedIn(KEY, "#/chat", options);
    await page.locator("#input").waitFor();
    const share = await page.evaluate(() => (document.querySelector(".composer")?.clientHeight ?? 0) / innerHeight);
    expect(share).toBeLessThanOrEqual(0.2);
    if (!(await page.locator("#settings-model").isVisible()))
      await page.getByRole("button", { name: "Settings" }).click();
    await page.locator("summary", { hasText: "Tools" }).click();
    await page.getByRole("button", { name: "Put in an example" }).first().click();
    await page.getByRole("button", { name: "Add an MCP server" }).click();
    await page.getByRole("button", { name: "Remove", exact: true }).last().click();
    await page.getByLabel("Export", { exact: true }).click();
    await page.locator("summary", { hasText: "The next request as code" }).click();
    await ask(page, "Use get_weather.");
    await page.getByRole("button", { name: "Send output" }).waitFor();
    await expectAccessible(page);
    await expectUsable(page);
    await page.evaluate((hash) => (location.hash = hash), `#/responses/${id}`);
    await page.locator("summary", { hasText: "response.completed" }).click();
    await page.locator("summary", { hasText: "JSON" }).click();
    await expectAccessible(page);
    await expectUsable(page);
    await close();
  });
});
