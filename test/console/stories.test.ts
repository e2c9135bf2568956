import { readFileSync } from "node:fs";
import type { BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { eventually, lastPrompt } from "../e2e/support.ts";
import { type ConsoleRig, expectAccessible, expectUsable, KEY, KEYED, LOOKS, startConsole } from "./support.ts";

/** Stories of people in a chat. The page shows the messages that the model gets with the next request. */

let rig: ConsoleRig;
beforeAll(async () => {
  rig = await startConsole({ ...KEYED, RESPONSE_INDEX: "true", EVENT_LOG_INTERVAL_MS: "50", HEARTBEAT_MS: "300" });
});
afterAll(() => rig.close());
beforeEach(() => rig.gateway.vllm.simulator.clear());

const DEVICES = LOOKS.slice(0, 2);

/** A tab with a new chat. */
async function chatting(options: BrowserContextOptions, use: (page: Page) => Promise<void>, expected: string[] = []) {
  const { page, expectClean, close } = await rig.openSignedIn(KEY, "#/chat", options);
  await page.locator("#input").waitFor();
  await use(page);
  expectClean(expected);
  await close();
}

const send = (page: Page) => page.getByRole("button", { name: "Send", exact: true });

/** Asks, and waits until the answer has ended. */
async function ask(page: Page, text: string): Promise<void> {
  await page.getByLabel("Input", { exact: true }).fill(text);
  await send(page).click();
  await page.locator(".item-input", { hasText: text }).last().waitFor();
  await send(page).waitFor();
}

/** Waits until the page has read the turns of a chat from the store. */
async function allRead(page: Page): Promise<void> {
  await page.locator(".turn .turn-footer .tag").first().waitFor();
  await page.locator(".turn:not(:has(.turn-footer .tag))").first().waitFor({ state: "detached" });
}

async function settings(page: Page, use: () => Promise<void>): Promise<void> {
  const panel = page.locator(".settings");
  const isHidden = !(await panel.isVisible());
  if (isHidden) await page.getByRole("button", { name: "Settings", exact: true }).click();
  await use();
  if (isHidden) await page.getByRole("button", { name: "Settings", exact: true }).click();
}

/** Sets fields that have no control of their own. */
function further(page: Page, fields: object): Promise<void> {
  return settings(page, async () => {
    const field = page.getByLabel("Further fields (JSON)");
    if (!(await field.isVisible())) await page.locator(".settings summary", { hasText: "More" }).click();
    await field.fill(JSON.stringify(fields));
  });
}

/**
 * The turns on the page from top to bottom: questions, answers, and calls with their outputs. They are read in the next frame, as a person
 * sees them: the page adds a frame's text just before the browser paints it, but its buttons at once.
 */
function onPage(page: Page): Promise<string[]> {
  return page.locator(".transcript").evaluate(async (transcript) => {
    await new Promise(requestAnimationFrame);
    return [...transcript.querySelectorAll<HTMLElement>(".item-input, .item-answer, .item-call")]
      .filter((item) => item.checkVisibility() && !item.closest(".unseen-turn"))
      .map((item) => [...item.querySelectorAll(".part")].map((part) => part.textContent?.trim()).join(" | "));
  });
}

/** The last request at the model server: the texts of its messages, and calls with their outputs. */
function inPrompt(): string[] {
  const { messages = [] } = lastPrompt(rig.gateway) as { messages?: Record<string, unknown>[] };
  return messages.flatMap(({ role, content, tool_calls: calls }) => [
    ...(role === "system" || content == null || content === "" ? [] : [textOf(content)]),
    ...((calls ?? []) as { function: { arguments: string } }[]).map((call) => call.function.arguments),
  ]);
}

function textOf(content: unknown): string {
  return typeof content === "string"
    ? content
    : (content as { text?: string }[]).map(({ text }) => text ?? "").join("");
}

/** Asks once more: the model gets what is on the page, in its order, and nothing else. */
async function expectSeen(page: Page, question: string): Promise<void> {
  const before = await onPage(page);
  await ask(page, question);
  expect(inPrompt()).toEqual([...before, question]);
  expect(await onPage(page)).toEqual([...before, question, `You said: ${question}`]);
}

describe.each(DEVICES)("in a chat: %s", (_, options) => {
  it("a question is answered, and the next one continues it", () =>
    chatting(options, async (page) => {
      await ask(page, "first");
      expect(await onPage(page)).toEqual(["first", "You said: first"]);
      await expectSeen(page, "second");
      const share = await page.evaluate(() => {
        const heightOf = (name: string) => document.querySelector(name)?.clientHeight ?? 0;
        return (heightOf(".bar") + heightOf(".chat-header") + heightOf(".composer")) / innerHeight;
      });
      expect(share).toBeLessThanOrEqual(0.25);
    }));

  it("an edited question stands in its place, with the versions before it", () =>
    chatting(options, async (page) => {
      await ask(page, "first");
      await ask(page, "second");
      await page.getByRole("button", { name: "Edit", exact: true }).first().click();
      const field = page.getByLabel("Edited question");
      expect(await field.inputValue()).toBe("first");
      await field.fill("another first");
      await page.getByRole("button", { name: "Ask in its place" }).click();
      await page.getByText("You said: another first", { exact: true }).waitFor();
      await send(page).waitFor();
      expect(await onPage(page)).toEqual(["another first", "You said: another first"]);
      await expectSeen(page, "third");
      await page.getByText("2/2").waitFor();
      await page.getByRole("button", { name: "Previous version" }).click();
      await page.getByText("You said: second", { exact: true }).waitFor();
      expect(await onPage(page)).toEqual(["first", "You said: first", "second", "You said: second"]);
      await expectSeen(page, "fourth");
    }));

  it("an answer that is regenerated stands in its place; later turns belong to the other version", () =>
    chatting(options, async (page) => {
      await ask(page, "first");
      await ask(page, "second");
      await page.getByRole("button", { name: "Regenerate" }).first().click();
      await page.getByText("2/2").waitFor();
      await send(page).waitFor();
      expect(await onPage(page)).toEqual(["first", "You said: first"]);
      await expectSeen(page, "third");
      // It is so after a reload, too.
      await page.reload();
      await allRead(page);
      await expectSeen(page, "fourth");
    }));

  it.each(["Background", "Stream", "WebSocket", "No streaming"])(
    "a turn that was stopped says what of it the model will see, and the next question goes on from there: %s",
    (transport) =>
      chatting(
        options,
        async (page) => {
          await ask(page, "first");
          await settings(page, async () => {
            await page.getByLabel("Transport").selectOption({ label: transport });
          });
          await further(page, { model: "simulator?fault=stall:3&words=40" });
          await page.getByLabel("Input", { exact: true }).fill("count");
          await send(page).click();
          if (transport === "No streaming") await eventually(() => rig.gateway.vllm.simulator.requests[1]);
          else await page.locator(".item-answer .part").nth(1).waitFor();
          await page.getByRole("button", { name: "Stop", exact: true }).click();
          await send(page).waitFor();
          const said =
            transport === "No streaming" ? "will not see this turn" : "see the question and the answer as far";
          await page.getByText(said).waitFor();
          await further(page, {});
          await page.getByLabel("Input", { exact: true }).fill("");
          await expectSeen(page, "go on");
        },
        ["WebSocket", "404"],
      ),
  );

  it("a stopped turn can be dropped: the next question takes its place", () =>
    chatting(options, async (page) => {
      await ask(page, "first");
      await further(page, { model: "simulator?fault=stall:3&words=40" });
      await page.getByLabel("Input", { exact: true }).fill("count");
      await send(page).click();
      await page.locator(".item-answer .part").nth(1).waitFor();
      await page.getByRole("button", { name: "Stop", exact: true }).click();
      await page.getByRole("button", { name: "Drop" }).click();
      await page.getByText("The model will not see this turn").waitFor();
      await further(page, {});
      await expectSeen(page, "second");
      await page.getByText("2/2").waitFor();
    }));

  it("two models answer side by side, and the chat goes on with the chosen one", () =>
    chatting(options, async (page) => {
      await settings(page, async () => {
        await page.getByLabel("Model", { exact: true }).selectOption("simulator");
        await page.getByLabel("Second model").selectOption("simulator-reasoning");
      });
      await page.getByLabel("Input", { exact: true }).fill("hello");
      await send(page).click();
      const pair = page.locator(".turn-pair");
      await pair.getByText("completed", { exact: true }).nth(1).waitFor();
      const titles = await pair.getByRole("heading", { level: 2 }).allTextContents();
      expect(titles).toEqual(["simulator", "simulator-reasoning"]);
      expect(await onPage(page)).toEqual(["hello", "You said: hello", "hello", "You said: hello"]);
      await pair.locator("summary", { hasText: "Words that differ" }).click();
      await pair.getByText("They say the same.").waitFor();
      await pair.getByRole("radio", { name: "simulator-reasoning" }).check();
      await settings(page, async () => {
        await page.getByLabel("Second model").selectOption("");
      });
      await page.getByLabel("Input", { exact: true }).fill("again");
      await send(page).click();
      await page.getByText("You said: again", { exact: true }).waitFor();
      await pair.waitFor({ state: "detached" });
      // The chosen answer has a thought, and is the second version.
      expect(await page.locator(".item-reasoning").count()).toBe(1);
      await page.getByText("2/2").waitFor();
      expect(inPrompt()).toEqual(["hello", "You said: hello", "again"]);
    }));

  it("a branch begins at a turn in the middle, which then is the end of the page", () =>
    chatting(options, async (page) => {
      await ask(page, "first");
      await ask(page, "second");
      await page.getByRole("button", { name: "Branch from here" }).first().click();
      await page.getByText("Your message begins another branch here.").waitFor();
      expect(await onPage(page)).toEqual(["first", "You said: first"]);
      await expectSeen(page, "other");
      await page.getByRole("button", { name: "Map", exact: true }).click();
      const map = page.getByRole("tree", { name: "Turns of the conversation" });
      expect(await map.getByRole("treeitem").count()).toBe(3);
      await map.getByText("second", { exact: true }).click();
      await page.locator(".transcript").getByText("You said: second", { exact: true }).waitFor();
      await page.getByRole("button", { name: "Map", exact: true }).click();
      await expectSeen(page, "last");
    }));

  it("a function's output stands in the card of its call", () =>
    chatting(options, async (page) => {
      const functions = [{ type: "function", name: "get_weather", parameters: { type: "object", properties: {} } }];
      await further(page, { tools: functions });
      await page.getByLabel("Input", { exact: true }).fill("Use get_weather.");
      await send(page).click();
      await page.getByLabel("Output of get_weather").fill("sunny");
      await page.getByRole("button", { name: "Send output" }).click();
      await page.locator(".item-answer", { hasText: "The tool get_weather returned: sunny" }).waitFor();
      const card = page.locator(".item-call");
      expect(await card.count()).toBe(1);
      await card.getByText("sunny", { exact: true }).waitFor();
      expect(await page.locator(".item-input").count()).toBe(1);
      await send(page).waitFor();
      await ask(page, "thanks");
      expect(inPrompt()).toEqual(["Use get_weather.", "{}", "sunny", "The tool get_weather returned: sunny", "thanks"]);
    }));

  it("without storage, the next request has the turns itself", () =>
    chatting(options, async (page) => {
      await further(page, { store: false });
      await ask(page, "first");
      await expectSeen(page, "second");
      await further(page, {});
      await expectSeen(page, "third");
      await expectSeen(page, "fourth");
    }));

  it("of another client is opened whole by its address, and continued", () =>
    chatting(options, async (page) => {
      const post = async (body: object) => {
        const answer = await rig.gateway.post({ model: "simulator", ...body }, { authorization: `Bearer ${KEY}` });
        return ((await answer.json()) as { id: string }).id;
      };
      const one = await post({ input: "one" });
      const two = await post({ input: "two", previous_response_id: one });
      await post({ input: "three", previous_response_id: two });
      await page.evaluate((hash) => (location.hash = hash), `#/chat/${one}`);
      await allRead(page);
      const whole = ["one", "You said: one", "two", "You said: two", "three", "You said: three"];
      expect(await onPage(page)).toEqual(whole);
      await expectSeen(page, "four");
    }));

  it("is found again in the list: by its words, with the title and the pin that it was given; with all versions", () =>
    chatting(options, async (page) => {
      await further(page, { metadata: {} });
      await ask(page, "Which owl is the largest?");
      await page.getByRole("button", { name: "Edit", exact: true }).click();
      await page.getByLabel("Edited question").fill("Which owl is the smallest?");
      await page.getByRole("button", { name: "Ask in its place" }).click();
      await page.locator(".transcript").getByText("You said: Which owl is the smallest?", { exact: true }).waitFor();
      await send(page).waitFor();
      await page.getByRole("button", { name: "New chat" }).click();
      await ask(page, "Something else");
      const list = page.getByRole("navigation", { name: "Chats" });
      if (!(await list.isVisible())) await page.getByRole("button", { name: "Chats", exact: true }).click();
      const chat = list.getByRole("link", { name: "Which owl is the largest?" });
      await chat.waitFor();
      // Another version of the first question is no chat of its own.
      expect(await list.getByRole("link", { name: "Which owl is the smallest?" }).count()).toBe(0);
      const row = list.getByRole("listitem").filter({ hasText: "Which owl is the largest?" });
      await row.hover();
      await row.getByRole("button", { name: "Rename" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Let the model name it" }).click();
      await eventually(async () => /^You said/.test(await page.getByLabel("Title").inputValue()));
      await page.getByLabel("Title").fill("Owls");
      await page.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
      const renamed = list.getByRole("listitem").filter({ hasText: /^\s*Owls\s*$/ });
      await renamed.hover();
      await renamed.getByRole("button", { name: "Pin", exact: true }).click();
      await renamed.getByRole("button", { name: "Unpin" }).waitFor();
      await eventually(async () => {
        const path = "/v1/responses?group_by=tree&metadata[pinned]=true";
        const answer = await rig.gateway.fetch(rig.gateway.url + path, { headers: { authorization: `Bearer ${KEY}` } });
        return ((await answer.json()) as { data: object[] }).data.length === 1;
      });
      await page.reload();
      if (!(await list.isVisible())) await page.getByRole("button", { name: "Chats", exact: true }).click();
      // A pinned chat stands above newer ones.
      await eventually(async () => (await list.getByRole("link").first().textContent()) === "Owls");
      await list.getByLabel("Search chats").fill("largest");
      await eventually(async () => (await list.getByRole("link", { name: "Something else" }).count()) === 0);
      await list.getByRole("link", { name: "Owls", exact: true }).click();
      await page.locator(".transcript").getByText("You said: Which owl is", { exact: false }).first().waitFor();
      await allRead(page);
      await page.getByText(/^[12]\/2$/).waitFor();
      await expectSeen(page, "And then?");
      await renamed.hover();
      await renamed.getByRole("button", { name: "Delete" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
      await renamed.waitFor({ state: "detached" });
      await eventually(async () => (await page.locator(".turn").count()) === 0);
    }));

  it("is saved as Markdown and as JSON", () =>
    chatting(options, async (page) => {
      await ask(page, "first");
      const saved = async (name: string) => {
        await page.getByLabel("Export", { exact: true }).click();
        const saving = page.waitForEvent("download");
        await page.getByRole("button", { name }).click();
        const text = readFileSync(await (await saving).path(), "utf8");
        await page.getByLabel("Export", { exact: true }).click();
        return text;
      };
      expect(await saved("Save as Markdown")).toContain("**User**\n\nfirst\n\n**Assistant**\n\nYou said: first");
      const { turns } = JSON.parse(await saved("Save as JSON"));
      expect(turns).toMatchObject([{ input: [{ content: "first" }], response: { status: "completed" } }]);
    }));

  it("is accessible, and fits the screen", () =>
    chatting(options, async (page) => {
      await ask(page, "first");
      await page.getByRole("button", { name: "Regenerate" }).click();
      await page.getByText("2/2").waitFor();
      await send(page).waitFor();
      await page.getByRole("button", { name: "Map", exact: true }).click();
      await page.getByRole("tree", { name: "Turns of the conversation" }).waitFor();
      await expectAccessible(page);
      await expectUsable(page);
    }));
});

it.each(DEVICES)(
  "a gateway that is killed in mid-answer is told on the page, and where the answer went on: %s",
  (_, options) =>
    chatting(
      options,
      async (page) => {
        await further(page, { model: "simulator?fault=stall:3" });
        await page.getByLabel("Input", { exact: true }).fill("one two three four five six");
        await send(page).click();
        await page.locator(".item-answer .part").first().waitFor();
        const restarted = rig.worker.restart();
        await page
          .locator(".connection")
          .getByText(/The connection is lost. Trying again \(\d+\)/)
          .waitFor();
        await restarted;
        await page
          .locator(".connection")
          .getByText(/Connected again after event \d+: nothing is lost, nothing is repeated./)
          .waitFor();
        await eventually(() => {
          for (const request of rig.gateway.vllm.simulator.requests) request.release();
          return page.getByText("completed", { exact: true }).isVisible();
        });
        expect(await onPage(page)).toEqual(["one two three four five six", "You said: one two three four five six"]);
        await further(page, {});
        await expectSeen(page, "and then?");
      },
      ["ERR_", "network error"],
    ),
);

it.each(DEVICES)("a request that was slow tells why: it waited for the turn before it: %s", async (_, options) => {
  const client = rig.gateway.client({ apiKey: KEY });
  const { id: conversation } = await client.conversations.create();
  const make = (input: string, model: string) => client.responses.create({ model, input, conversation });
  const first = make("one", "simulator?fault=stall:2");
  await eventually(() => rig.gateway.vllm.simulator.requests[0]);
  const second = make("two", "simulator");
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  for (const request of rig.gateway.vllm.simulator.requests) request.release();
  await first;
  const { id } = await second;
  await chatting(options, async (page) => {
    await page.evaluate((hash) => (location.hash = hash), `#/chat/${id}`);
    await page.locator(".transcript").getByText("You said: two", { exact: true }).waitFor();
    await page.locator(".turn").last().getByRole("link", { name: "Details" }).click();
    await page
      .getByText(/waited for an earlier turn of its conversation/)
      .first()
      .waitFor();
  });
});

it("a model server that breaks off in mid-answer is told with the answer, which has each word once", () =>
  chatting({}, async (page) => {
    await further(page, { model: "simulator?fault=cut:3" });
    await ask(page, "one two three four five six");
    await page.getByText(/broke off.* nothing is lost, nothing is repeated/).waitFor();
    expect(await onPage(page)).toEqual(["one two three four five six", "You said: one two three four five six"]);
  }));
