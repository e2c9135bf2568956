import type { Response } from "openai/resources/responses/responses";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { lastPrompt } from "../e2e/support.ts";
import { homeKey, objectId } from "../workerd/storage.ts";
import { type ConsoleRig, expectAccessible, expectUsable, KEY, KEYED, LOOKS, startConsole } from "./support.ts";

/** The map of a chat, in a browser. */

let rig: ConsoleRig;
beforeAll(async () => {
  rig = await startConsole(KEYED);
});
afterAll(() => rig.close());

const client = () => rig.gateway.client({ apiKey: KEY });

function say(input: string, previous?: Response, more: object = {}): Promise<Response> {
  const continued = previous && { previous_response_id: previous.id };
  return client().responses.create({ model: "simulator", input, ...continued, ...more });
}

/** A text that would be markup if the page did not escape it. */
const QUESTION = "A name for a boat? <img src=x onerror=alert(1)>";

/** A question, two answers to it, and one further turn of the second. */
async function smallTree() {
  const root = await say(QUESTION);
  const left = await say("Something shorter", root);
  const right = await say("Something windy", root);
  return { root, left, right, leaf: await say("And in French?", right) };
}

const rows = (page: Page) => page.getByRole("treeitem");

/** The row under the cursor, as screen readers announce it. */
async function active(page: Page): Promise<{ level: string | null; text: string }> {
  const id = await page.getByRole("tree").getAttribute("aria-activedescendant");
  const row = page.locator(`#${id}`);
  return { level: await row.getAttribute("aria-level"), text: (await row.locator(".tree-said").textContent()) ?? "" };
}

const transcript = (page: Page) => page.locator(".transcript");

/** Opens a chat with its map. */
async function openMap(at: string, options = {}) {
  const tab = await rig.openSignedIn(KEY, `#/chat/${at}`, options);
  await tab.page.getByRole("button", { name: "Map", exact: true }).click();
  await rows(tab.page).first().waitFor();
  return tab;
}

describe("the map of a chat", () => {
  it("has every turn in its place; the chosen one is on the path", async () => {
    const { root, leaf } = await smallTree();
    const { page, expectClean, close } = await openMap(leaf.id);
    await page.getByText("4 turns, 2 branches.", { exact: true }).waitFor();
    const levels = await rows(page).evaluateAll((found) => found.map((row) => row.getAttribute("aria-level")));
    expect(levels.toSorted()).toEqual(["1", "2", "2", "3"]);
    // The path ends at the turn of the address.
    expect(await rows(page).filter({ hasText: "And in French?" }).getAttribute("aria-selected")).toBe("true");
    await rows(page).filter({ hasText: "Something shorter" }).click();
    await transcript(page).getByText("You said: Something shorter").waitFor();
    expect(await transcript(page).getByText("Something windy").count()).toBe(0);
    expectClean();
    await client().responses.delete(root.id);
    await page.getByRole("button", { name: "New chat" }).click();
    const { promise: isSent, resolve: send } = Promise.withResolvers<void>();
    await page.route("**/input_items?*", (route) => isSent.then(() => route.continue()));
    await page.evaluate(`location.hash = "#/chat/${leaf.id}"`);
    await page.getByText("3 turns, 2 branches.", { exact: true }).waitFor();
    await transcript(page).getByText("The turn before this one was deleted").waitFor();
    // The server cannot continue what lost its beginning: the request has the turns itself, also those not read yet.
    await page.getByLabel("Input", { exact: true }).fill("Go on");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    send();
    await transcript(page).getByText("You said: Go on", { exact: true }).waitFor();
    const { messages } = lastPrompt(rig.gateway) as { messages: { content: string }[] };
    expect(messages.map(({ content }) => content)).toEqual([
      "Something windy",
      "You said: Something windy",
      "And in French?",
      "You said: And in French?",
      "Go on",
    ]);
    await close();
  });

  it("is navigated by the keyboard alone", async () => {
    const { root } = await smallTree();
    const { page, close } = await openMap(root.id);
    await page.getByRole("tree").focus();
    const levelAfter = async (key: string) => {
      await page.keyboard.press(key);
      return Number((await active(page)).level);
    };
    // The last row has nothing to close, so "left" goes to its parent.
    expect(await levelAfter("End")).toBe((await levelAfter("ArrowLeft")) + 1);
    expect(await levelAfter("Home")).toBe(1);
    expect(await levelAfter("ArrowRight")).toBe(2);
    expect(await levelAfter("ArrowUp")).toBe(1);
    expect(await levelAfter("ArrowUp")).toBe(1);
    expect(await rows(page).first().getAttribute("aria-expanded")).toBe("true");
    await page.keyboard.press("ArrowLeft");
    expect(await rows(page).first().getAttribute("aria-expanded")).toBe("false");
    expect(await rows(page).count()).toBe(1);
    await page.keyboard.press("ArrowRight");
    expect(await rows(page).count()).toBe(4);
    await page.getByRole("button", { name: "Close all" }).click();
    expect(await rows(page).count()).toBe(3);
    await page.getByRole("button", { name: "Open all" }).click();
    expect(await rows(page).count()).toBe(4);
    await page.getByRole("tree").focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowDown");
    const { text } = await active(page);
    await page.keyboard.press("Enter");
    await transcript(page).getByText(text, { exact: true }).waitFor();
    await close();
  });

  it("of a conversation shows its turns in a row, and branches beside them", async () => {
    const { id } = await client().conversations.create();
    const first = await say("One", undefined, { conversation: id });
    await say("Two", undefined, { conversation: id });
    await say("Aside", first);
    const { page, close } = await openMap(id);
    await page.getByText("3 turns, 2 branches.", { exact: true }).waitFor();
    const of = (text: string) => rows(page).filter({ hasText: `You said: ${text}` });
    expect(await of("One").getAttribute("aria-level")).toBe("1");
    for (const text of ["Two", "Aside"]) expect(await of(text).getAttribute("aria-level")).toBe("2");
    await close();
  });

  it("stays fast with two thousand branches: only visible rows are on the page", async () => {
    const root = await say("The root");
    const branch = await say("Branch #0", root);
    grow(branch.id, 1_999);
    const { page, expectClean, close } = await openMap(root.id);
    await page.getByText("2,001 turns, 2,000 branches.", { exact: true }).waitFor();
    expect(await rows(page).count()).toBeLessThan(60);
    await page.getByRole("tree").focus();
    await page.keyboard.press("End");
    expect(await page.locator(".tree-row.active").getAttribute("aria-posinset")).toBe("2000");
    await page.keyboard.press("PageUp");
    await page.keyboard.press("Enter");
    await transcript(page)
      .getByText(/^You said: Branch #\d+$/)
      .waitFor();
    await page.getByRole("tree").evaluate((tree) => tree.scrollTo(0, tree.scrollHeight / 2));
    await page.locator("[aria-posinset='1000']").waitFor();
    expect(await rows(page).count()).toBeLessThan(60);
    await page.getByLabel("Find a turn").fill("branch #1234");
    await page.locator("[aria-posinset='1235']").waitFor();
    expect(await rows(page).count()).toBe(1);
    expectClean();
    await close();
  });
});

it("a chat that does not exist is told by the server's message", async () => {
  const { page, close } = await rig.openSignedIn(KEY, `#/chat/${encodeURIComponent("resp_<script>")}`);
  await page.getByText("Response with id 'resp_<script>' not found.").waitFor();
  await close();
});

/** Copies a turn in its home this many times, as if clients had created the copies. */
function grow(id: string, copies: number): void {
  const { storage } = rig.gateway;
  const turn = id.slice(-10);
  storage.exec(
    objectId(`acme:${homeKey(id)}`),
    `WITH RECURSIVE copies(number) AS (VALUES (1) UNION ALL SELECT number + 1 FROM copies WHERE number < ?2),
     named AS (SELECT number, substr(?1, 1, 2) || printf('%08d', number) AS name FROM copies)
     INSERT INTO turns (turn, part, parent, created_at, position, base, input, output, response, messages, log)
     SELECT name, part, parent, created_at + number, position, base,
       replace(replace(input, ?1, name), '#0', '#' || number), replace(replace(output, ?1, name), '#0', '#' || number),
       replace(response, ?1, name), messages, log
     FROM turns, named WHERE turn = ?1`,
    turn,
    copies,
  );
}

it("two branches are shown side by side, from their common turn on", async () => {
  const { root, left, leaf, right } = await smallTree();
  const { page, expectClean, close } = await openMap(left.id);
  await page.getByRole("button", { name: "Compare with…" }).click();
  await page.getByText("Now choose the other turn.").waitFor();
  await rows(page).filter({ hasText: "And in French?" }).click();
  const one = page.getByRole("region", { name: "One branch" });
  const other = page.getByRole("region", { name: "The other branch" });
  await one.getByText("You said: Something shorter").waitFor();
  await other.getByText("You said: Something windy").waitFor();
  await other.getByText("You said: And in French?").waitFor();
  await page.locator("summary", { hasText: "Words that differ" }).click();
  const first = page.getByRole("region", { name: "Turn 1" });
  await expect.poll(() => first.locator("del").allTextContents()).toEqual(["removed: shorter", "removed: shorter"]);
  expect(await first.locator("ins").allTextContents()).toEqual(["added: windy", "added: windy"]);
  const common = page.getByRole("link", { name: `“${QUESTION}”` });
  expect(await common.getAttribute("href")).toBe(`#/responses/${root.id}`);
  await page.getByRole("button", { name: "Back to the chat" }).click();
  await transcript(page).getByText("You said: Something shorter").waitFor();
  await page.evaluate(`location.hash = "#/chat/${left.id}/compare/${right.id}/${leaf.id}"`);
  await one.getByText("Ends where the other one goes on.").waitFor();
  expectClean();
  await close();
});

it.each(LOOKS)("the map and the comparison are accessible, and fit the screen: %s", async (_, options) => {
  const { left, leaf } = await smallTree();
  const { page, close } = await openMap(leaf.id, options);
  await transcript(page).getByText("You said: And in French?").waitFor();
  await expectAccessible(page);
  await expectUsable(page);
  await page.evaluate(`location.hash = "#/chat/${leaf.id}/compare/${left.id}/${leaf.id}"`);
  await page.getByRole("region", { name: "One branch" }).getByText("You said: Something shorter").waitFor();
  await expectAccessible(page);
  await expectUsable(page);
  await close();
});
