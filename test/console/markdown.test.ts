import type { Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { eventually } from "../e2e/support.ts";
import { type ConsoleRig, expectAccessible, startConsole, type Tab } from "./support.ts";

/** Answers in Markdown, as users see them. The simulator repeats its input. */

let rig: ConsoleRig;
beforeAll(async () => {
  rig = await startConsole({ HEARTBEAT_MS: "300" });
});
afterAll(() => rig.close());
beforeEach(() => rig.gateway.vllm.simulator.clear());

async function trying(use: (page: Page, tab: Tab) => Promise<void>, options = {}): Promise<void> {
  const tab = await rig.open("#/chat", options);
  await tab.page.locator("#input").waitFor();
  await use(tab.page, tab);
  tab.expectClean();
  await tab.close();
}

/** Sends a question, and waits for the whole answer. */
async function answered(page: Page, text: string, further: object = {}): Promise<void> {
  await page.locator(".settings summary", { hasText: "More" }).click();
  await page.getByLabel("Further fields (JSON)").fill(JSON.stringify(further));
  await page.getByLabel("Input", { exact: true }).fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByText("completed", { exact: true }).waitFor();
}

const answer = (page: Page) => page.locator(".item-answer .markdown");
/** An answer's markup on the page, without lit's marks. */
const markup = async (page: Page) => (await answer(page).innerHTML()).replaceAll(/<!--.*?-->/gs, "");

const SAMPLE = `

# A title

Some **bold**, *slanted* and \`inline\` words, ~~gone~~, [a link](https://example.com/a?b=c) & 1 &lt; 2.
A second line.

- one
- two
  1. deep
  2. deeper
- [x] done

> quoted

| name | count |
|:-----|------:|
| owl  | 12    |

\`\`\`js
const owl = "hoot"; // noise
\`\`\`

The sum is $a^2 + b^2$ and costs $5 or $6.

$$
\\int_0^1 x\\,dx = \\frac{1}{2}
$$

The end.`;

describe("an answer in markdown", () => {
  it("has headings, lists, tables, quotations, links, code in colours and formulas", () =>
    trying(async (page) => {
      await answered(page, SAMPLE);
      const shown = answer(page);
      expect(await shown.getByRole("heading", { name: "A title" }).count()).toBe(1);
      expect(await shown.locator("strong").textContent()).toBe("bold");
      expect(await shown.locator("em").textContent()).toBe("slanted");
      expect(await shown.locator("del").textContent()).toBe("gone");
      expect(await shown.getByRole("link", { name: "a link" }).getAttribute("href")).toBe("https://example.com/a?b=c");
      expect(await shown.getByText("& 1 < 2.").count()).toBe(1);
      expect(await shown.locator("ul > li").count()).toBe(3);
      expect(await shown.locator("ul ol > li").allTextContents()).toEqual(["deep", "deeper"]);
      expect(await shown.locator("blockquote").textContent()).toBe("quoted");
      expect(await shown.getByRole("cell", { name: "12" }).count()).toBe(1);
      await shown.locator(".hljs-keyword", { hasText: "const" }).waitFor();
      expect(await shown.locator(".code-block pre").textContent()).toBe('const owl = "hoot"; // noise');
      await shown.locator(".formula math mfrac").waitFor();
      expect(await shown.locator("math").count()).toBe(2);
      expect(await shown.getByText("and costs $5 or $6.").count()).toBe(1);
      await expectAccessible(page);
    }));

  it("has diagrams, drawn as images that run no script; another text stays as it is written", () =>
    trying(async (page) => {
      const diagram = 'graph TD\n  A["<img src=x onerror=alert(1)>"] --> B{Ready?}\n  B -->|yes| C[Done]';
      await answered(page, `A flow:\n\n\`\`\`mermaid\n${diagram}\n\`\`\`\n\n\`\`\`mermaid\nno diagram\n\`\`\``);
      const image = answer(page).getByRole("img", { name: "Diagram" });
      await image.waitFor();
      const size = await image.evaluate(async (element: HTMLImageElement) => {
        await element.decode();
        return element.naturalWidth * element.naturalHeight;
      });
      expect(size).toBeGreaterThan(1_000);
      await answer(page).getByText("This is no diagram that the page can draw.").waitFor();
      await answer(page).getByText("As written").nth(1).click();
      expect(await answer(page).locator(".code-block pre").first().textContent()).toBe(diagram);
    }));

  it("has tables whose columns go from right to left where their heads do", () =>
    trying(async (page) => {
      await answered(page, "טבלה:\n\n| עיר | מעלות |\n|---|---|\n| ליסבון | 24 |");
      await answer(page).locator("th").first().waitFor();
      const [first, second] = await answer(page)
        .locator("th")
        .evaluateAll((heads) => heads.map((head) => head.getBoundingClientRect().left));
      expect(first).toBeGreaterThan(second ?? 0);
    }));

  it("looks the same after a stream of tokens and as a whole", () =>
    trying(async (page) => {
      await answered(page, SAMPLE, { model: "simulator?tps=400" });
      await answer(page).locator(".formula math mfrac").waitFor();
      await answer(page).locator(".hljs-keyword").waitFor();
      const live = await markup(page);
      await page.reload();
      await answer(page).locator(".formula math mfrac").waitFor();
      await answer(page).locator(".hljs-keyword").waitFor();
      expect(await markup(page)).toBe(live);
    }));

  it("is shown and copied as source on request", () =>
    trying(
      async (page) => {
        await answered(page, SAMPLE);
        await page.getByRole("button", { name: "As written" }).click();
        await page.locator(".item-answer .long-text pre", { hasText: "Some **bold**, *slanted*" }).waitFor();
        await page.getByRole("button", { name: "As written" }).click();
        expect(await answer(page).locator("strong").textContent()).toBe("bold");
        await answer(page).getByRole("button", { name: "Copy" }).click();
        expect(await page.evaluate("navigator.clipboard.readText()")).toBe('const owl = "hoot"; // noise');
      },
      { permissions: ["clipboard-read", "clipboard-write"] },
    ));

  it("turns no model's text into HTML, script or a request", () =>
    trying(async (page) => {
      const hostile = [
        "",
        "<img src=x onerror=alert(1)> <script>alert(1)</script> <b>not bold</b>",
        "[script](javascript:alert(1)) [data](data:text/html,x) ![picture](https://example.com/x.png)",
        '<https://example.com/" onmouseover=alert(1)> &#60;img&#62;',
        "```<img src=x onerror=alert(1)>",
        "</code></pre><script>alert(1)</script>",
        "```",
        "$\\href{javascript:alert(1)}{x} \\htmlId{input}{y} \\label{input}$",
        `${">".repeat(3_000)} deep`,
        `${"- ".repeat(500)}deep`,
        `${"[".repeat(2_000)}`,
        `${"*a ".repeat(2_000)}`,
      ].join("\n\n");
      await answered(page, hostile);
      const shown = answer(page);
      await shown.getByText("<b>not bold</b>").waitFor();
      expect(await shown.locator("img, script, b, iframe, [onerror], [onmouseover], [id], [style*=url]").count()).toBe(
        0,
      );
      const links = await shown.locator("a").evaluateAll((all) => all.map((each) => each.getAttribute("href")));
      expect(links.every((href) => href?.startsWith("https://example.com/"))).toBe(true);
      await page.locator("#input").fill("still here");
    }));

  it("is shown as its source if it is JSON", () =>
    trying(async (page) => {
      await answered(page, "x", {
        text: {
          format: {
            type: "json_schema",
            name: "a",
            schema: {
              type: "object",
              properties: { snake_case_name: { type: "string" } },
              required: ["snake_case_name"],
              additionalProperties: false,
            },
          },
        },
      });
      expect(await page.locator(".item-answer .long-text pre").textContent()).toContain('"snake_case_name"');
    }));
});

describe("a tab without requests", () => {
  it("has three examples, and the simulator gives each a fitting answer", () =>
    trying(async (page) => {
      const start = async () => {
        await page.getByText("completed", { exact: true }).last().waitFor();
        await page.getByRole("button", { name: "New chat" }).click();
      };
      await page.getByRole("button", { name: "An answer with code, a table and a formula" }).click();
      await answer(page).locator("math mfrac, math msup").first().waitFor();
      await answer(page).locator(".hljs-keyword").first().waitFor();
      expect(await answer(page).getByRole("cell").count()).toBeGreaterThan(3);
      await page.locator(".item-reasoning summary").waitFor();
      await start();
      await page.getByRole("button", { name: "A call of a function" }).click();
      await page.getByLabel("Output of get_weather").fill("Sun");
      await page.getByRole("button", { name: "Send output" }).click();
      await answer(page).getByRole("cell", { name: "Sun", exact: true }).waitFor();
      await start();
      await page.getByRole("button", { name: "An answer as JSON, by a schema" }).click();
      await page.locator(".item-answer").getByText(`{"answer":"Blakiston's fish owl"}`).waitFor();
      await page.getByText("completed", { exact: true }).waitFor();
    }));
});

describe("the Enter key", () => {
  it("sends, and makes a new line with Shift; Ctrl + Enter sends if that is chosen", () =>
    trying(async (page) => {
      const input = page.locator("#input");
      await input.focus();
      await page.keyboard.type("one");
      await page.keyboard.press("Shift+Enter");
      await page.keyboard.type("two");
      expect(await input.inputValue()).toBe("one\ntwo");
      await page.keyboard.press("Enter");
      await page.getByText("completed", { exact: true }).waitFor();
      await page.getByLabel("Enter sends").uncheck();
      await input.focus();
      await page.keyboard.type("three");
      await page.keyboard.press("Enter");
      expect(await input.inputValue()).toBe("three\n");
      // The browser remembers the choice.
      await eventually(async () =>
        /"enterSends":false/.test(String(await page.evaluate("sessionStorage['console.draft']"))),
      );
      await page.reload();
      expect(await page.getByLabel("Enter sends").isChecked()).toBe(false);
      await input.focus();
      await page.keyboard.press("Control+Enter");
      await page.getByText("completed", { exact: true }).nth(1).waitFor();
    }));

  it("makes a new line on a phone, until it is told to send; the composer leaves four fifths of the height to the answer", () =>
    trying(
      async (page) => {
        const input = page.locator("#input");
        await input.fill("one");
        await page.keyboard.press("Enter");
        expect(await input.inputValue()).toBe("one\n");
        await page.getByRole("button", { name: "Send", exact: true }).click();
        await page.getByText("completed", { exact: true }).waitFor();
        // Two phones, with their keyboards, and one of them in landscape.
        const sizes = ["390x844", "390x450", "844x390", "320x640", "320x360"].map((size) =>
          size.split("x").map(Number),
        );
        for (const [width = 0, height = 0] of sizes) {
          await page.setViewportSize({ width, height });
          await eventually(async () => {
            const box = await page.locator(".composer").boundingBox();
            return (box?.height ?? 1_000) / height <= 0.2;
          });
        }
        await page.setViewportSize({ width: 390, height: 844 });
        await page.getByRole("button", { name: "Settings", exact: true }).click();
        await page.locator(".settings summary", { hasText: "More" }).click();
        await page.getByLabel("Enter sends").check();
        await input.fill("two");
        await page.keyboard.press("Enter");
        await page.getByText("completed", { exact: true }).nth(1).waitFor();
      },
      { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true },
    ));
});

it("an answer without output is reported", () =>
  trying(async (page) => {
    await answered(page, "hello", { model: "simulator?words=0" });
    await page.getByText("The model said nothing.").waitFor();
  }));

it("reasoning can be followed while it streams, and folds with its duration", () =>
  trying(async (page) => {
    await page.locator(".settings summary", { hasText: "More" }).click();
    await page.getByLabel("Further fields (JSON)").fill(JSON.stringify({ model: "simulator-reasoning?fault=stall:4" }));
    await page.getByLabel("Input", { exact: true }).fill("hello");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    const thought = page.locator(".item-reasoning details");
    await thought.getByText(/^The user/).waitFor();
    expect(await thought.getAttribute("open")).not.toBeNull();
    await thought.locator("summary", { hasText: /\d+ (ms|s)|\d s/ }).waitFor();
    for (const request of rig.gateway.vllm.simulator.requests) request.release();
    await page.getByText("completed", { exact: true }).waitFor();
    expect(await thought.getAttribute("open")).toBeNull();
    expect(await thought.locator("summary").textContent()).toMatch(/Reasoning\s+\d/);
  }));
