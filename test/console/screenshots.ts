/**
 * `npm run screenshots`: pictures of the console's views for the docs, in both themes, of a real deployment in front of the simulator. Into
 * docs/images, or the directory that is named.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { type ConsoleRig, KEY, KEYED, startConsole } from "./support.ts";

/** What is to be seen in a picture. */
interface Picture {
  name: string;
  /** Who is signed in; nobody without. */
  key?: string;
  /** The address's hash. */
  at: string;
  /** Brings the page to where it is to be shown. */
  prepare(page: Page, rig: ConsoleRig): Promise<void>;
}

const QUESTION = "What is the weather in Lisbon? Use get_weather.";

/** Asks a question whose answer is a call, and gives its output. */
async function askForWeather(page: Page): Promise<void> {
  await page.getByLabel("Model").selectOption("simulator-reasoning");
  await page.getByLabel("Instructions").fill("Answer in one sentence.");
  await page.locator("summary", { hasText: "Tools" }).click();
  await page.getByRole("button", { name: "Put in an example" }).first().click();
  await page.getByLabel("Input", { exact: true }).fill(QUESTION);
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.getByLabel("Output of get_weather").fill('{"sky": "clear", "celsius": 24}');
  await page.getByRole("button", { name: "Send output" }).click();
  await page.getByText("completed", { exact: true }).nth(1).waitFor();
}

const PICTURES: Picture[] = [
  { name: "sign-in", at: "", prepare: (page) => page.getByRole("dialog").waitFor() },
  {
    name: "try",
    key: KEY,
    at: "#/try",
    async prepare(page) {
      await askForWeather(page);
      await page.evaluate("scrollTo(0, 0)");
    },
  },
  {
    name: "look",
    key: KEY,
    at: "#/try",
    async prepare(page) {
      await askForWeather(page);
      await page.getByRole("link", { name: "Look", exact: true }).nth(1).click();
      await page.getByRole("button", { name: "response.created" }).click();
      await page.locator(".looked .item-reasoning summary").first().click();
      await page.evaluate("scrollTo(0, 0)");
    },
  },
];

const directory = process.argv[2] ?? fileURLToPath(new URL("../../docs/images", import.meta.url));
mkdirSync(directory, { recursive: true });
const rig = await startConsole(KEYED);
for (const { name, key, at, prepare } of PICTURES) {
  for (const colorScheme of ["light", "dark"] as const) {
    const options = { colorScheme, viewport: { width: 1200, height: 860 } };
    const { page, close } = key === undefined ? await rig.open(at, options) : await rig.openSignedIn(key, at, options);
    await prepare(page, rig);
    await page.evaluate("document.activeElement?.blur()");
    await page.screenshot({ path: join(directory, `console-${name}-${colorScheme}.png`) });
    await close();
  }
}
await rig.close();
