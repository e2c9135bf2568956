import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  type CDPSession,
  chromium as driver,
  type Page,
} from "playwright-core";
import { expect } from "vitest";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { type Gateway, gatewayAt } from "../e2e/support.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { chromium } from "./chromium.ts";

/** The console in a real browser, in front of a real workerd and a simulated vLLM. */

/** A key of the tenant "acme", one of the tenant "other", and the root key of the admin API. */
export const KEY = "key-of-acme";
export const OTHER_KEY = "key-of-other";
export const ROOT_KEY = "root-key-of-ops";

const entry = (name: string, key: string) => `${name}:${createHash("sha256").update(key).digest("hex")}`;

/** The variables of a deployment with these keys. */
export const KEYED = {
  API_KEYS: [entry("acme", KEY), entry("other", OTHER_KEY)].join(","),
  ADMIN_KEY: entry("ops", ROOT_KEY),
  KEY_CACHE_MS: "100",
};

/** A tab, and the check that nothing unexpected went wrong in it. */
export interface Tab {
  page: Page;
  /**
   * Throws when the tab has asked another host for anything, broken its content-security policy, or reported an error to its console.
   * `expected`: parts of messages that belong to the test, such as the status of an answer.
   */
  expectClean(expected?: string[]): void;
  close(): Promise<void>;
}

export interface ConsoleRig {
  gateway: Gateway;
  /** The gateway's process. */
  worker: WorkerdProcess;
  browser: Browser;
  /** Opens the console in a tab of its own, with a storage of its own. `at`: the hash. */
  open(at?: string, options?: BrowserContextOptions): Promise<Tab>;
  /** Opens the console as after a reload of a tab that was signed in with a key. */
  openSignedIn(key: string, at?: string, options?: BrowserContextOptions): Promise<Tab>;
  close(): Promise<void>;
}

/** The browser of all test files of this process. */
let running: Promise<Browser> | undefined;

/** Joins the running browser, which the first file of a process starts. It ends with the process. */
export function joinBrowser(): Promise<Browser> {
  running ??= driver.launch({
    executablePath: chromium,
    args: [
      // A container's root may not have the sandbox's namespaces; the pages are this project's own.
      "--no-sandbox",
      "--disable-dev-shm-usage",
      // The policy for openers makes the console another process than the empty page's. With this limit it takes that one.
      "--renderer-process-limit=1",
    ],
  });
  return running;
}

/** A browser's storage, with a process that draws its tabs, which an empty tab keeps. */
interface Profile {
  context: BrowserContext;
  empty: Page;
  session: CDPSession;
}

/** The profiles without a tab, by their options, for all files of this process: another one would cost more than its first tab. */
const spare = new Map<string, Profile[]>();

/** Closes the tabs that failed tests of a file have left open, with their profiles. */
export async function closeTabs(browser: Browser): Promise<void> {
  const kept = new Set([...spare.values()].flatMap((profiles) => profiles.map(({ context }) => context)));
  await Promise.all(browser.contexts().map((context) => kept.has(context) || context.close()));
}

async function newProfile(browser: Browser, options: BrowserContextOptions): Promise<Profile> {
  // Without this the browser would draw animations during an answer sixty times a second.
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    reducedMotion: "reduce",
    ...options,
  });
  // A missing element fails the test after this time, which is for a machine that has much else to do.
  context.setDefaultTimeout(Number(process.env.CONSOLE_TIMEOUT_MS ?? 120_000));
  const empty = await context.newPage();
  return { context, empty, session: await context.newCDPSession(empty) };
}

/** Closes a profile's tabs, and removes what they stored and were permitted. */
async function emptied({ context, empty, session }: Profile, origin: string): Promise<void> {
  await Promise.all(context.pages().map((page) => page !== empty && page.close()));
  await session.send("Storage.clearDataForOrigin", { origin, storageTypes: "all" });
  await Promise.all([context.clearCookies(), context.clearPermissions()]);
}

/** Starts a gateway, for all tests of a file. `through`: `serve` runs programs. */
export async function startConsole(
  vars: Record<string, string> = {},
  through: "workerd" | "serve" = "workerd",
): Promise<ConsoleRig> {
  const vllm = await serveSimulator();
  const variables = { VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", ...vars };
  const [worker, browser] = await Promise.all([startWorkerd(variables, { through }), joinBrowser()]);
  const gateway = gatewayAt(worker, vllm);
  const open: ConsoleRig["open"] = (at, options) => openTab(browser, gateway.url, at, options);
  return {
    gateway,
    worker,
    browser,
    open,
    openSignedIn: (key, at, options) => openTab(browser, gateway.url, at, options, key),
    async close() {
      await closeTabs(browser);
      await gateway.close();
    },
  };
}

/** Opens the console of a server in a tab of its own, with a storage of its own. With a key, the tab is signed in already. */
export async function openTab(
  browser: Browser,
  url: string,
  at = "",
  options: BrowserContextOptions = {},
  key?: string,
): Promise<Tab> {
  const kind = JSON.stringify(options);
  const profile = spare.get(kind)?.pop() ?? (await newProfile(browser, options));
  const signedIn = key !== undefined && `sessionStorage["console.key"] ??= ${JSON.stringify(key)}`;
  const script = signedIn ? await profile.context.addInitScript(signedIn) : undefined;
  const page = await profile.context.newPage();
  const expectClean = watch(page, url);
  await page.goto(`${url}/${at}`);
  return {
    page,
    expectClean,
    async close() {
      await script?.dispose();
      await emptied(profile, url);
      spare.set(kind, [...(spare.get(kind) ?? []), profile]);
    },
  };
}

/** Types a key into the sign-in form, and waits until it is accepted. */
export async function signIn(page: Page, key: string): Promise<void> {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Sign out" }).waitFor();
}

function watch(page: Page, own: string): Tab["expectClean"] {
  const strangers: string[] = [];
  const errors: string[] = [];
  const { host } = new URL(own);
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (!["data:", "blob:"].includes(url.protocol) && url.host !== host) strangers.push(request.url());
  });
  page.on("websocket", (socket) => new URL(socket.url()).host !== host && strangers.push(socket.url()));
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  return (expected = []) => {
    expect(strangers).toEqual([]);
    expect(errors.filter((error) => !expected.some((part) => error.includes(part)))).toEqual([]);
  };
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/**
 * Throws axe's findings in a page, with their places: all rules in the light theme, and the colour rules in the dark
 * one.
 */
export async function expectAccessible(page: Page): Promise<void> {
  // axe is evaluated, because the page's policy refuses other scripts. Each page gets it once: it has half a megabyte.
  if (await page.evaluate("!window.axe")) await page.evaluate(axe);
  // What the bar and the composer cover is reached by scrolling.
  const setPosition = (position: string) =>
    page.evaluate((value) => {
      for (const each of document.querySelectorAll<HTMLElement>(".bar, .composer")) each.style.position = value;
    }, position);
  await setPosition("static");
  const found = (rules: string[]) =>
    // Without `resultTypes` the result would have thousands of places without a fault.
    page.evaluate(`axe.run({ runOnly: ${JSON.stringify(rules)}, resultTypes: ["violations"], selectors: false }).then(({ violations }) =>
      violations.map(({ id, nodes }) => ({ id, at: nodes.map(({ html, failureSummary }) => html + " " + failureSummary) })),
    )`);
  expect(await found(["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"])).toEqual([]);
  await page.emulateMedia({ colorScheme: "dark" });
  expect(await found(["color-contrast", "link-in-text-block"])).toEqual([]);
  await page.emulateMedia({ colorScheme: "light" });
  await setPosition("");
}

/**
 * Throws if a part of a page cannot be used: the page is wider than the view; a focused control is out of view or
 * covered; a card has less than half of a phone's width; a text field has a fixed direction of writing.
 */
export async function expectUsable(page: Page): Promise<void> {
  const faults = await page.evaluate(async () => {
    const found: string[] = [];
    const named = (element: Element | null) => element?.outerHTML.replace(/\s+/g, " ").slice(0, 120) ?? "nothing";
    const { clientWidth: width, clientHeight: height, scrollWidth } = document.documentElement;
    if (scrollWidth > width) found.push(`The page is ${scrollWidth} wide, its view ${width}.`);
    const scope = document.querySelector("dialog[open]") ?? document.body;
    const before = document.activeElement;
    for (const control of scope.querySelectorAll<HTMLElement>(
      "a, button, input, select, textarea, summary, [tabindex='0']",
    )) {
      if (!control.checkVisibility() || control.matches(".skip, .unseen, :disabled")) continue;
      control.focus();
      const faultOf = () => {
        const box = control.getClientRects()[0] as DOMRect;
        const x = box.left + box.width / 2;
        const y = (Math.max(0, box.top) + Math.min(height, box.bottom)) / 2;
        const there = document.elementFromPoint(x, y);
        if (box.left < 0 || box.right > width + 1) return `Beside the view: ${named(control)}`;
        return control.contains(there) ? "" : `At the place of ${named(control)} is ${named(there)}`;
      };
      // The browser scrolls as it focuses the control. The page itself moves things a frame later.
      if (faultOf() === "") continue;
      await new Promise((done) => requestAnimationFrame(done));
      const fault = faultOf();
      if (fault) found.push(fault);
    }
    if (before instanceof HTMLElement) before.focus();
    for (const card of scope.querySelectorAll(".card")) {
      const share = card.getBoundingClientRect().width / width;
      if (width <= 640 && card.checkVisibility() && share < 0.5) found.push(`Squeezed: ${named(card)}`);
    }
    for (const field of scope.querySelectorAll<HTMLElement>("textarea, input:not([type])")) {
      if (field.dir !== "auto") found.push(`Without dir="auto": ${named(field)}`);
    }
    return found;
  });
  expect(faults).toEqual([]);
}

/** The widths in which every view is checked. Themes differ only in colours (`expectAccessible` checks both). */
export const LOOKS: [name: string, options: BrowserContextOptions][] = [
  ["desktop", {}],
  ["phone", { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }],
  ["small phone", { viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true }],
];
