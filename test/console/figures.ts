/**
 * `npm run console-figures`: measures the console in a real browser, in front of the simulator (docs/console.md,
 * "Figures"). The figures depend on the machine, which should do nothing else.
 */
import type { CDPSession, Page } from "playwright-core";
import { eventually } from "../e2e/support.ts";
import { type ConsoleRig, KEY, KEYED, startConsole } from "./support.ts";

/** A long answer: tokens a second, and the number of seconds. */
const RATE = 200;
const SECONDS = 20;

/** A long conversation. */
const TURNS = 300;

/** The number of first loads of each kind. Their median counts. */
const LOADS = 9;

/** Lighthouse's phone, with real instead of computed limits: slow 4G, and a fourth of the CPU. */
const SLOW = { offline: false, latency: 150, downloadThroughput: 1_638_400 / 8, uploadThroughput: 768_000 / 8 };
const PHONE = { viewport: { width: 412, height: 823 }, hasTouch: true, isMobile: true };

/** Notes when the form is there, and when the server has named its models. */
const WATCH = `window.noted = {};
const watching = setInterval(() => {
  if (document.querySelector("#input")) noted.form ??= performance.now();
  if (document.querySelector("#model option")?.textContent) noted.models ??= performance.now();
  if (noted.form && noted.models) clearInterval(watching);
}, 2);`;

/** Every task of the page that took longer than 50 ms, from the beginning of the page on. */
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

/** A first load, in milliseconds and bytes. */
async function load(
  rig: ConsoleRig,
  isPhone: boolean,
): Promise<Record<"form" | "models" | "requests" | "bytes", number>> {
  const context = await rig.browser.newContext(isPhone ? PHONE : {});
  await context.addInitScript(WATCH);
  const page = await context.newPage();
  const session = await context.newCDPSession(page);
  if (isPhone) {
    await session.send("Network.enable");
    await session.send("Network.emulateNetworkConditions", SLOW);
    await session.send("Emulation.setCPUThrottlingRate", { rate: 4 });
  }
  await page.goto(rig.gateway.url);
  await eventually(async () => (await page.evaluate("Boolean(noted.form && noted.models)")) === true);
  const figures = await page.evaluate<{ form: number; models: number; requests: number; bytes: number }>(`(() => {
    const entries = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
    const before = entries.filter(({ responseEnd }) => responseEnd > 0 && responseEnd <= noted.form);
    return { ...noted, requests: before.length, bytes: before.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0) };
  })()`);
  await context.close();
  return figures;
}

const open = await startConsole();
for (const isPhone of [false, true]) {
  const loads = [];
  for (let count = 0; count < LOADS; count += 1) loads.push(await load(open, isPhone));
  const {
    form = 0,
    models = 0,
    requests,
    bytes,
  } = loads.toSorted((one, other) => one.form - other.form)[LOADS >> 1] ?? {};
  console.log(
    `first load, ${isPhone ? "phone" : "desktop"}: the form after ${form.toFixed(0)} ms, ${requests} requests and ${bytes} bytes; the models after ${models.toFixed(0)} ms`,
  );
}
await open.close();

const rig = await startConsole(KEYED);

const streaming = await rig.openSignedIn(KEY, "#/chat");
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

const long = await rig.openSignedIn(KEY, "#/chat");
const session = await long.page.context().newCDPSession(long.page);
await long.page.getByLabel("Transport").selectOption({ label: "Stream" });
console.log(`heap of an empty tab: ${await heapOf(session)}`);
for (let turn = 1; turn <= TURNS; turn += 1) {
  await ask(long.page, `Turn ${turn}: a question of the length that questions have, with a little more of it.`);
  await eventually(async () => (await long.page.locator(".turn .tag.good").count()) === turn);
}
console.log(`heap after ${TURNS} turns: ${await heapOf(session)}`);
await long.close();
await rig.close();
await rig.browser.close();
