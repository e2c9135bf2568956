/**
 * `npm run console-figures`: measures the console in a real browser, in front of the simulator (docs/console.md, "Figures"). The figures are those of the
 * machine that it runs on: nothing else should.
 */
import type { CDPSession, Page } from "playwright-core";
import { eventually } from "../e2e/support.ts";
import { KEY, KEYED, startConsole } from "./support.ts";

/** A long answer: tokens a second, and for how many seconds. */
const RATE = 200;
const SECONDS = 20;

/** A long conversation. */
const TURNS = 300;

/** Every task of the page's that took longer than 50 ms, from its beginning on. */
const OBSERVE = `window.longTasks = [];
new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) longTasks.push(duration); }).observe({ type: "longtask", buffered: true });`;

async function ask(page: Page, text: string): Promise<void> {
  await page.getByLabel("Input", { exact: true }).fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
}

async function heapOf(session: CDPSession): Promise<string> {
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  return `${(usedSize / 2 ** 20).toFixed(1)} MiB`;
}

const rig = await startConsole(KEYED);

const streaming = await rig.openSignedIn(KEY, "#/try");
await streaming.page.evaluate(OBSERVE);
await streaming.page.locator("summary", { hasText: "More" }).click();
const model = `simulator?tps=${RATE}&words=${RATE * SECONDS}`;
await streaming.page.getByLabel("Further fields (JSON)").fill(JSON.stringify({ model }));
const begun = Date.now();
await ask(streaming.page, "Speak.");
await streaming.page.getByText("completed", { exact: true }).waitFor({ timeout: 120_000 });
const tasks = await streaming.page.evaluate<number[]>("longTasks");
console.log(`${RATE * SECONDS} tokens in ${((Date.now() - begun) / 1_000).toFixed(1)} s`);
console.log(
  `tasks above 50 ms: ${tasks.length}; above 100 ms: ${tasks.filter((task) => task > 100).length}; longest ${Math.max(0, ...tasks).toFixed(0)} ms`,
);
await streaming.close();

const long = await rig.openSignedIn(KEY, "#/try");
const session = await long.page.context().newCDPSession(long.page);
await long.page.getByRole("radio", { name: "Stream", exact: true }).check();
console.log(`heap of an empty tab: ${await heapOf(session)}`);
for (let turn = 1; turn <= TURNS; turn += 1) {
  await ask(long.page, `Turn ${turn}: a question of the length that questions have, with a little more of it.`);
  await eventually(async () => (await long.page.locator(".turn .tag.good").count()) === turn);
}
console.log(`heap after ${TURNS} turns: ${await heapOf(session)}`);
await long.close();
await rig.close();
