import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { call, chunk, type ScriptedGateway, startScripted, stream } from "../e2e/scripted-vllm.ts";
import { eventually } from "../e2e/support.ts";
import { closeTabs, joinBrowser, openTab } from "./support.ts";

/** The question and the growing answer stay in view, in every turn. */

/** A model that outputs the test's text at once. */
class FedModel {
  #given: object[] = [];
  #isDone = false;
  #wake = () => {};

  say(...deltas: object[]): void {
    this.#given.push(...deltas);
    this.#wake();
  }

  end(): void {
    this.#isDone = true;
    this.#wake();
  }

  async *events(): AsyncGenerator<object> {
    const { events } = stream([], "stop");
    yield events[0] as object;
    while (!this.#isDone || this.#given.length > 0) {
      for (const delta of this.#given.splice(0)) yield chunk(delta);
      if (!this.#isDone) await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    yield* events.slice(1);
  }
}

let scripted: ScriptedGateway;
let browser: Browser;
let models: FedModel[] = [];
beforeAll(async () => {
  [scripted, browser] = await Promise.all([startScripted({ EVENT_LOG_INTERVAL_MS: "50" }), joinBrowser()]);
});
afterEach(() => {
  for (const model of models) model.end();
});
afterAll(async () => {
  await closeTabs(browser);
  await scripted.close();
});

const SIZES: [name: string, options: BrowserContextOptions][] = [
  ["desktop, reduced motion", { viewport: { width: 1280, height: 800 } }],
  ["phone", { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, reducedMotion: "no-preference" }],
];

/** A tab at Try, in front of a model whose output the test controls. */
async function trying(options: BrowserContextOptions, use: (page: Page) => Promise<void>): Promise<void> {
  models = [];
  scripted.replies(() => {
    const model = new FedModel();
    models.push(model);
    return { events: model.events() };
  });
  const { page, expectClean, close } = await openTab(browser, scripted.url, "#/chat", options);
  await page.locator("#input").waitFor();
  await use(page);
  expectClean();
  await close();
}

/** Sends a question. Returns the model that received it. */
async function ask(page: Page, text: string): Promise<FedModel> {
  const before = models.length;
  await page.getByLabel("Input", { exact: true }).fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
  return eventually(() => models[before]);
}

const lines = (name: string, count: number) =>
  Array.from({ length: count }, (_, at) => `This is line ${at} of ${name}.\n`).join("");

const turn = (page: Page) => page.locator(".turn").last();
const question = (page: Page) => turn(page).locator(".item-input");
const word = (page: Page, text: string) => turn(page).locator(".answer :is(pre, .block)", { hasText: text }).last();

/** Outputs a text with a unique last word, and waits until that is on the page. */
let words = 0;
async function say(page: Page, model: FedModel, text: string, field = "content"): Promise<string> {
  words += 1;
  const last = `word-${words}.`;
  model.say({ [field]: `${text}${last}\n` });
  await word(page, last).waitFor({ state: "attached" });
  return last;
}

/** Waits two frames, after which the page has laid out the change and scrolled. */
const settled = (page: Page) =>
  page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))");

/** The corners of an element, or of a text in it, that are out of the view or covered. */
async function unseen(page: Page, locator: ReturnType<Page["locator"]>, text?: string): Promise<string[]> {
  await settled(page);
  return locator.evaluate((element, wanted) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    if (wanted !== undefined) {
      const nodes = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
      for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
        const at = node.textContent?.lastIndexOf(wanted) ?? -1;
        if (at < 0) continue;
        range.setStart(node, at);
        range.setEnd(node, at + wanted.length);
      }
    }
    const { left, right, top, bottom } = (wanted === undefined ? element : range).getBoundingClientRect();
    const seen = visualViewport as VisualViewport;
    const corners = [
      [left + 10, top + 4],
      [right - 10, top + 4],
      [left + 10, bottom - 4],
      [right - 10, bottom - 4],
    ] as const;
    return corners.flatMap(([x, y]) => {
      const isInside = x >= 0 && y >= 0 && x <= seen.width && y <= seen.offsetTop + seen.height;
      const there = document.elementFromPoint(x, y);
      if (isInside && element.contains(there)) return [];
      return [
        `${wanted ?? element.className} at ${Math.round(x)}, ${Math.round(y)}: ${isInside ? there?.outerHTML : "not in view"}`,
      ];
    });
  }, text);
}

const isQuestionSeen = async (page: Page) => expect(await unseen(page, question(page))).toEqual([]);
const isWordSeen = async (page: Page, text: string) => expect(await unseen(page, word(page, text), text)).toEqual([]);
const toTheEnd = (page: Page) => page.getByRole("button", { name: "To the end" });

describe.each(SIZES)("%s", (_, options) => {
  it("the question and the newest text are in view, on every turn", () =>
    trying(options, async (page) => {
      const questions = ["What is first?", lines("a long question", 60), "And then?", "And after that?"];
      for (const asked of questions) {
        const model = await ask(page, asked);
        await isQuestionSeen(page);
        const first = await say(page, model, "It begins with ");
        await isQuestionSeen(page);
        await isWordSeen(page, first);
        const next = await say(page, model, lines("the answer", 4));
        await isQuestionSeen(page);
        await isWordSeen(page, next);
        for (const count of [20, 1, 60]) await isWordSeen(page, await say(page, model, lines("the answer", count)));
        const last = await say(page, model, "It ends with ");
        model.end();
        await turn(page).getByText("completed", { exact: true }).waitFor();
        await isWordSeen(page, last);
        expect(await unseen(page, turn(page).locator(".turn-footer"))).toEqual([]);
        expect(await toTheEnd(page).isVisible()).toBe(false);
      }
    }));

  it("reasoning and calls are in view, too", () =>
    trying(options, async (page) => {
      const before = await ask(page, "Hello");
      await say(page, before, lines("the answer", 60));
      before.end();
      await turn(page).getByText("completed", { exact: true }).waitFor();
      const further = page.getByLabel("Functions (JSON)");
      if (!(await page.locator("#settings-model").isVisible()))
        await page.getByRole("button", { name: "Settings", exact: true }).click();
      await page.locator("summary", { hasText: "Tools" }).click();
      await page.getByRole("button", { name: "Functions as JSON" }).click();
      await further.fill('[{"name": "get_weather", "parameters": {"type": "object"}}]');
      const model = await ask(page, "What is the weather?");
      await say(page, model, "I think of ", "reasoning");
      await isQuestionSeen(page);
      await isWordSeen(page, await say(page, model, "And of ", "reasoning"));
      model.say(...call(0, "get_weather", '{"city": "Lisbon"}'));
      model.end();
      await page.getByLabel("Output of get_weather").waitFor();
      expect(await unseen(page, turn(page).locator(".item-call"))).toEqual([]);
      expect(await unseen(page, page.getByRole("button", { name: "Send output" }))).toEqual([]);
    }));

  it("the view of a reader who has scrolled up stays until they go to the end", () =>
    trying(options, async (page) => {
      const model = await ask(page, "Tell me all");
      await say(page, model, lines("the answer", 80));
      await settled(page);
      await page.mouse.move(200, 300);
      await page.mouse.wheel(0, -500);
      await toTheEnd(page).waitFor();
      await settled(page);
      const place = () => page.evaluate("scrollY");
      const before = await place();
      const unread = await say(page, model, lines("what is not read yet", 40));
      await settled(page);
      expect(await place()).toBe(before);
      expect(await unseen(page, word(page, unread), unread)).not.toEqual([]);
      await toTheEnd(page).click();
      await isWordSeen(page, unread);
      expect(await toTheEnd(page).isVisible()).toBe(false);
      await isWordSeen(page, await say(page, model, lines("what is read", 40)));
      // After scrolling to the end the page follows again, too.
      await page.mouse.wheel(0, -500);
      await toTheEnd(page).waitFor();
      await page.mouse.wheel(0, 5_000);
      await toTheEnd(page).waitFor({ state: "hidden" });
      await isWordSeen(page, await say(page, model, lines("the rest", 40)));
      // A new question is in view.
      model.end();
      await turn(page).getByText("completed", { exact: true }).waitFor();
      await page.mouse.wheel(0, -1_500);
      await toTheEnd(page).waitFor();
      const next = await ask(page, "And now?");
      await isQuestionSeen(page);
      await isWordSeen(page, await say(page, next, "Now "));
    }));

  it("a part that a reader opens stays in its place", () =>
    trying(options, async (page) => {
      const model = await ask(page, "Think");
      await say(page, model, lines("a thought", 100), "reasoning");
      await say(page, model, lines("the answer", 3));
      await settled(page);
      const summary = turn(page).locator(".item-reasoning summary");
      const place = async () => Math.round((await summary.boundingBox())?.y ?? 0);
      const before = await place();
      await summary.click();
      await turn(page).getByText("This is line 9 of a thought.").waitFor();
      await say(page, model, lines("the answer", 3));
      await settled(page);
      expect(await place()).toBe(before);
      await toTheEnd(page).waitFor();
    }));

  it("the end stays in view when the window changes its size, or a keyboard covers a part of it", () =>
    trying(options, async (page) => {
      const model = await ask(page, "Tell me all");
      const last = await say(page, model, lines("the answer", 80));
      const { width, height } = page.viewportSize() ?? { width: 0, height: 0 };
      await page.setViewportSize({ width: width - 60, height: height - 250 });
      await isWordSeen(page, last);
      await page.setViewportSize({ width: height, height: width });
      await isWordSeen(page, last);
      await page.setViewportSize({ width, height });
      await isWordSeen(page, last);
      // A keyboard that does not make the page shorter makes the visual viewport shorter.
      await page.evaluate((rest) => {
        Object.defineProperty(visualViewport, "height", { get: () => rest });
        visualViewport?.dispatchEvent(new Event("resize"));
      }, height - 300);
      await isWordSeen(page, last);
      expect(await unseen(page, page.locator("#input"))).toEqual([]);
      await isWordSeen(page, await say(page, model, lines("the answer", 10)));
    }));
});

it("an opened view begins at its top, and Try returns to the end", () =>
  trying({}, async (page) => {
    const model = await ask(page, "Tell me all");
    await say(page, model, lines("the answer", 80));
    await turn(page).getByRole("link", { name: "Details", exact: true }).click();
    await page.locator(".view-responses").getByText("This is line 9 of the answer.").waitFor();
    await settled(page);
    expect(await page.evaluate("scrollY")).toBe(0);
    await page.getByRole("link", { name: "Chat", exact: true }).click();
    await isWordSeen(page, await say(page, model, lines("the rest", 40)));
  }));

describe("texts in right-to-left scripts", () => {
  const QUESTION = "מה מזג האוויר?";
  const ANSWER = "בליסבון שמשי.";

  /** The texts in such a script that the page lays out from left to right. */
  const wrong = (page: Page) =>
    page.evaluate(() => {
      const texts = document.createTreeWalker(document.querySelector("main") as Element, NodeFilter.SHOW_TEXT);
      const found: string[] = [];
      let right = 0;
      for (let node = texts.nextNode(); node; node = texts.nextNode()) {
        const holder = node.parentElement as HTMLElement;
        if (!/^[^A-Za-z]*[\u0590-\u05ff]/.test(node.textContent ?? "") || !holder.checkVisibility()) continue;
        if (getComputedStyle(holder).direction === "rtl") right += 1;
        else found.push(holder.outerHTML);
      }
      return { found, right };
    });

  it("begin at the right, in every view and field", () =>
    trying({}, async (page) => {
      await page.locator("summary", { hasText: "Tools" }).click();
      await page.getByRole("button", { name: "Functions as JSON" }).click();
      await page.getByLabel("Functions (JSON)").fill('[{"name": "get_weather", "parameters": {"type": "object"}}]');
      const model = await ask(page, QUESTION);
      model.say({ reasoning: "המשתמש שואל." }, ...call(0, "get_weather", '{"city": "ליסבון"}'));
      model.end();
      await page.getByLabel("Output of get_weather").fill("שמש");
      expect(
        await page.getByLabel("Output of get_weather").evaluate((field) => getComputedStyle(field).direction),
      ).toBe("rtl");
      await page.getByRole("button", { name: "Send output" }).click();
      const next = await eventually(() => models[1]);
      next.say({ content: `${ANSWER}\nAnd in English.` });
      next.end();
      await turn(page).getByText("completed", { exact: true }).waitFor();
      await page.locator(".item-reasoning summary").first().click();
      await page.getByLabel("Input", { exact: true }).fill(QUESTION);
      expect(await page.locator("#input").evaluate((field) => getComputedStyle(field).direction)).toBe("rtl");
      expect(await wrong(page)).toEqual({ found: [], right: 5 });
      // Each paragraph has its own direction.
      const sides = await turn(page)
        .locator(".item-answer .markdown p")
        .evaluate((paragraph) => {
          const { left, right } = paragraph.getBoundingClientRect();
          const text = document.createTreeWalker(paragraph, NodeFilter.SHOW_TEXT).nextNode() as Node;
          const lines = [0, (text.textContent ?? "").indexOf("\n") + 1].map((at) => {
            const range = document.createRange();
            range.setStart(text, at);
            range.setEnd(text, at + 5);
            return range.getBoundingClientRect();
          });
          return lines.map((line) => (right - line.right < line.left - left ? "right" : "left"));
        });
      expect(sides).toEqual(["right", "left"]);
      await turn(page).getByRole("link", { name: "Details", exact: true }).click();
      await page.locator(".view-responses").getByText(ANSWER).waitFor();
      expect((await wrong(page)).found).toEqual([]);
      await page.getByRole("link", { name: "Open in the chat" }).click();
      await page.getByRole("button", { name: "Map", exact: true }).click();
      await page.getByRole("treeitem").filter({ hasText: ANSWER }).waitFor();
      const tree = await wrong(page);
      expect(tree.found).toEqual([]);
      expect(tree.right).toBeGreaterThanOrEqual(3);
    }));
});
