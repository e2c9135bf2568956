/**
 * `npm run screenshots`: makes the docs' pictures of the console's views, in both themes, from a real deployment in
 * front of the simulator. It writes into docs/images, or the given directory. `console.json` beside them lists the
 * views and sections that each picture shows.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { startHooks } from "./hooks.ts";
import { sampleBatches, sampleOperations, sampleStore, sampleTree } from "./sample-data.ts";
import { type ConsoleRig, KEY, KEYED, ROOT_KEY, startConsole } from "./support.ts";

/** The description of a picture. */
interface Picture {
  name: string;
  /** The signed-in user; absent if nobody is signed in. */
  key?: string;
  /** The hash of the address. */
  at: string;
  /** Brings the page into the state of the picture. */
  prepare(page: Page, rig: ConsoleRig): Promise<void>;
}

/** Asks one of the examples, and gives the output of its call. */
async function askForWeather(page: Page): Promise<void> {
  await page.getByRole("button", { name: "A call of a function" }).click();
  await page.getByLabel("Output of get_weather").fill('{"sky": "clear", "celsius": 24}');
  await page.getByRole("button", { name: "Send output" }).click();
  await page.getByText("completed", { exact: true }).nth(1).waitFor();
}

const PICTURES: Picture[] = [
  {
    name: "chat",
    key: KEY,
    at: "#/chat",
    async prepare(page, rig) {
      await sampleTree(rig);
      await askForWeather(page);
      await page.getByRole("link", { name: "What is the weather in Lisbon?" }).first().waitFor();
      await page.evaluate("scrollTo(0, 0)");
    },
  },
  {
    name: "pair",
    key: KEY,
    at: "#/chat",
    async prepare(page) {
      await page.getByLabel("Model", { exact: true }).selectOption("simulator");
      await page.getByLabel("Second model").selectOption("simulator-reasoning");
      await page.getByLabel("Input", { exact: true }).fill("What does a small sailing boat need for a weekend?");
      await page.getByRole("button", { name: "Send", exact: true }).click();
      await page.getByText("completed", { exact: true }).nth(1).waitFor();
      await page.locator("summary", { hasText: "Words that differ" }).click();
      await page.evaluate("scrollTo(0, 0)");
    },
  },
  {
    name: "map",
    key: KEY,
    at: "#/chat",
    async prepare(page, rig) {
      const { other } = await sampleTree(rig);
      await page.evaluate(`location.hash = "#/chat/${other}"`);
      await page.getByRole("button", { name: "Map", exact: true }).click();
      await page.getByRole("treeitem").nth(5).waitFor();
      await page.locator(".transcript").getByText("How is it pronounced?", { exact: true }).first().waitFor();
      await page.evaluate("scrollTo(0, 0)");
    },
  },
  {
    name: "responses",
    key: KEY,
    at: "#/responses",
    prepare: (page) => page.getByRole("row").nth(5).waitFor(),
  },
  {
    name: "look",
    key: KEY,
    at: "#/chat",
    async prepare(page) {
      await askForWeather(page);
      await page.getByRole("link", { name: "Details", exact: true }).nth(1).click();
      await page.getByRole("heading", { name: "Where the time went" }).waitFor();
      await page.evaluate("scrollTo(0, 0)");
    },
  },
  {
    name: "connect",
    key: KEY,
    at: "#/connect",
    prepare: (page) => page.getByRole("heading", { name: "Connect a client" }).waitFor(),
  },
  {
    name: "files",
    key: KEY,
    at: "#/files/stores",
    async prepare(page, rig) {
      await page.evaluate(`location.hash = "#/files/stores/${await sampleStore(rig)}"`);
      await page.getByLabel("Queries, one a line").fill("Why does a wing stall?");
      await page.getByRole("button", { name: "Search", exact: true }).click();
      await page.locator("mark").first().waitFor();
    },
  },
  operating("overview", async (page) => {
    await page.locator(".u-over").nth(3).waitFor();
    await page.locator(".u-over").nth(1).hover();
  }),
  operating("requests", (page) => page.getByText("Simulated fault.").first().waitFor()),
  operating("keys", (page) => page.getByRole("row").nth(3).waitFor()),
  operating("usage", async (page) => {
    await page.getByLabel("Group by").selectOption({ label: "Tenant" });
    await page.locator(".legend").getByText("initech").waitFor();
  }),
  // Its runs go on: those of the operator are counted before.
  {
    name: "batches",
    key: KEY,
    at: "#/batches",
    async prepare(page, rig) {
      await page.evaluate(`location.hash = "#/batches/${await sampleBatches(rig)}"`);
      await page.getByText("11 of 12 answered, 1 failed").waitFor();
    },
  },
];

/** A section of the operator's view. */
function operating(section: string, arrange: (page: Page) => Promise<void>): Picture {
  return {
    name: section,
    key: ROOT_KEY,
    at: "#/operate",
    async prepare(page, rig) {
      await sampleOperations(rig);
      await page.evaluate(`location.hash = "#/operate/${section}"`);
      await arrange(page);
    },
  };
}

const directory = process.argv[2] ?? fileURLToPath(new URL("../../docs/images", import.meta.url));
mkdirSync(directory, { recursive: true });
const hooks = await startHooks();
const rig = await startConsole({
  ...KEYED,
  ...hooks.variables,
  EMBEDDINGS_MODEL: "simulator",
  RESPONSE_INDEX: "true",
  MODEL_PRICES: JSON.stringify({ "*": { input: 3, output: 15 } }),
});
const shown: Record<string, string[]> = {};
for (const { name, key, at, prepare } of PICTURES) {
  for (const colorScheme of ["light", "dark"] as const) {
    const options = { colorScheme, viewport: { width: 1280, height: 860 } };
    const { page, close } = key === undefined ? await rig.open(at, options) : await rig.openSignedIn(key, at, options);
    await prepare(page, rig);
    await page.evaluate("document.activeElement?.blur()");
    shown[name] = await page.locator(".bar nav > a, [aria-label=Sections] a").allTextContents();
    await page.screenshot({ path: join(directory, `console-${name}-${colorScheme}.png`) });
    await close();
  }
}
writeFileSync(join(directory, "console.json"), `${JSON.stringify(shown, null, 2)}\n`);
await rig.close();
await rig.browser.close();
hooks.close();
