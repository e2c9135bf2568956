import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../e2e/support.ts";
import {
  type ConsoleRig,
  expectAccessible,
  expectUsable,
  KEY,
  KEYED,
  LOOKS,
  OTHER_KEY,
  startConsole,
} from "./support.ts";

/** The list of stored responses, as users see it. */

let rig: ConsoleRig;
beforeAll(async () => {
  rig = await startConsole({
    ...KEYED,
    RESPONSE_INDEX: "true",
    MODEL_PRICES: JSON.stringify({ simulator: { input: 3, output: 15 } }),
  });
  await makeResponses();
});
afterAll(() => rig.close());

/** Creates responses of the tenant. One is in a named conversation. */
async function makeResponses(): Promise<void> {
  const { responses, conversations } = rig.gateway.client({ apiKey: KEY });
  const { id: conversation } = await conversations.create({ metadata: { title: "Plans for the summer" } });
  const model = "simulator";
  await responses.create({ model, input: "Where does the ferry to Almada leave?", metadata: { team: "travel" } });
  await responses.create({ model, input: "Tell me a long story.", max_output_tokens: 2 });
  await responses.create({ model, input: "What should we see in Lisbon?", conversation });
  await responses.create({ model, input: "What time is it?", background: true });
  await eventually(async () => {
    const answer = await rig.gateway.fetch(`${rig.gateway.url}/v1/responses?status=completed`, {
      headers: { authorization: `Bearer ${KEY}` },
    });
    return ((await answer.json()) as { data: unknown[] }).data.length === 3;
  });
}

describe("stored responses", () => {
  it("are listed with their text, time, tokens and cost, and found by words and filters", async () => {
    const { page, expectClean, close } = await rig.openSignedIn(KEY, "#/responses");
    const rows = page.getByRole("region", { name: "Stored responses" }).locator("tbody tr");
    const ferry = rows.filter({ hasText: "Where does the ferry to Almada leave?" });
    await ferry.waitFor();
    expect(await rows.count()).toBe(4);
    expect(await ferry.textContent()).toMatch(
      /You said: Where does the ferry.*team: travel.*completed.*simulator.*\d m?s.*\d+ → \d+.*\$0\.0\d+/s,
    );
    await rows.getByRole("link", { name: "Plans for the summer" }).waitFor();
    const cost = (await ferry.getByRole("cell").last().textContent())?.trim();
    await page.getByLabel("Words").fill("ferry");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await eventually(async () => (await rows.count()) === 1);
    expect(new URL(page.url()).hash).toBe("#/responses?query=ferry");
    await page.getByRole("link", { name: "Clear" }).click();
    await eventually(async () => (await rows.count()) === 4);
    await page.getByLabel("Status").selectOption("incomplete");
    await eventually(async () => (await rows.count()) === 1);
    await page.goto(`${rig.gateway.url}/#/responses?metadata=team%3Dtravel`);
    await eventually(async () => (await rows.count()) === 1);
    await ferry.getByRole("link", { name: "Where does" }).click();
    await page.getByText("You said: Where does the ferry to Almada leave?").first().waitFor();
    const shown = page.locator(".view-responses dl.figures");
    await shown.getByText("Cost").waitFor();
    const figures = await shown.textContent();
    expect(figures).toMatch(/Took\s*\d[\d.]* (ms|s|min)/);
    expect(figures?.match(/Cost\s*(\$0\.0\d+)/)?.[1]).toBe(cost);
    expectClean();
    await close();
  });

  it("are visible to their tenant alone", async () => {
    const { page, expectClean, close } = await rig.openSignedIn(OTHER_KEY, "#/responses");
    await page.getByText("No response is stored yet.").waitFor();
    expectClean();
    await close();
  });

  it("say where the time went and what the model got, whoever made them", async () => {
    const { responses } = rig.gateway.client({ apiKey: KEY });
    const { id } = await responses.create({
      model: "simulator-reasoning",
      instructions: "Answer like a pirate.",
      input: "What is the weather in Lisbon? Use get_weather.",
      tools: [{ type: "function", name: "get_weather", parameters: { type: "object" }, strict: false }],
    });
    const { page, expectClean, close } = await rig.openSignedIn(KEY, `#/responses/${id}`);
    await page.getByText(/^[\d.]+ m?s of [\d.]+ m?s: /).waitFor();
    const times = page.getByRole("list", { name: "Times" });
    for (const name of ["Round 1", "reasoning", "get_weather"]) await times.getByText(name, { exact: true }).waitFor();
    expect(await times.textContent()).toMatch(/first token after \d+ ms · \d+ → \d+ tokens/);
    const figures = await page.locator(".view-responses dl.figures").first().textContent();
    expect(figures).toMatch(/Model server\s*\S+.*Took\s*\d[\d.]* (ms|s|min).*First token after/s);
    // This model has no price.
    expect(figures).not.toContain("Cost");
    await page.getByText("What the model got").click();
    const got = page.locator("details").filter({ hasText: "What the model got" });
    await got.getByText("Answer like a pirate.").first().waitFor();
    await got.getByText("1 tool: get_weather").waitFor();
    await got.getByText("What is the weather in Lisbon? Use get_weather.").first().waitFor();
    await got.getByText(/^<\|tools\|>.*<\|system\|>\sAnswer like a pirate/s).waitFor();
    await expectAccessible(page);
    await expectUsable(page);
    expectClean();
    await close();
  });

  it.each(LOOKS)("are accessible and usable: %s", async (_look, options) => {
    const { page, expectClean, close } = await rig.openSignedIn(KEY, "#/responses", options);
    await page.getByText("Plans for the summer").waitFor();
    await expectUsable(page);
    await expectAccessible(page);
    expectClean();
    await close();
  });
});
