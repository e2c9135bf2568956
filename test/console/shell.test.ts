import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../e2e/support.ts";
import {
  type ConsoleRig,
  expectAccessible,
  expectUsable,
  KEY,
  KEYED,
  LOOKS,
  ROOT_KEY,
  signIn,
  startConsole,
} from "./support.ts";

/** Signing in, and the headers of the console's files. */

let rig: ConsoleRig;
beforeAll(async () => {
  rig = await startConsole(KEYED);
});
afterAll(() => rig.close());

describe("signing in", () => {
  it("shows only a form until the server has accepted a key, and keeps the key out of the address", async () => {
    const { page, expectClean, close } = await rig.open("#/chat");
    await page.getByRole("dialog").waitFor();
    expect(await page.getByRole("navigation").count()).toBe(0);
    await page.getByLabel("API key").fill("no-such-key");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("Incorrect API key provided.").waitFor();
    await signIn(page, KEY);
    await page.getByRole("heading", { name: "Chat", exact: true }).waitFor();
    expect(page.url()).not.toContain(KEY);
    await page.reload();
    await page.getByRole("heading", { name: "Chat", exact: true }).waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("dialog").waitFor();
    expect(await page.evaluate("Object.keys(sessionStorage)")).toEqual([]);
    expectClean(["401"]);
    await close();
  });

  it("waits for no call where it is known: a page and one script make a form that can be filled in", async () => {
    const { page, expectClean, close } = await rig.openSignedIn(KEY);
    await page.getByLabel("Input", { exact: true }).waitFor();
    const answered = Promise.withResolvers<void>();
    await page.route("**/v1/models", async (route) => {
      await answered.promise;
      await route.continue();
    });
    await page.addInitScript(`window.shifts = [];
      window.observer = new PerformanceObserver((list) => shifts.push(...list.getEntries()));
      observer.observe({ type: "layout-shift", buffered: true });`);
    // The last script that the page before loads.
    await eventually(() =>
      page.evaluate("performance.getEntriesByType('resource').some(({ name }) => name.includes('markdown-reader'))"),
    );
    const asked: string[] = [];
    page.on("request", (request) => asked.push(new URL(request.url()).pathname.replace(/\w{16}/, "version")));
    await page.reload();
    await page.getByLabel("Input", { exact: true }).fill("Typed at once.");
    expect(asked.slice(0, 2)).toEqual(["/", "/assets/version/first.js"]);
    // Nothing that the page has shown has moved.
    expect(await page.evaluate("[...shifts, ...observer.takeRecords()].length")).toBe(0);
    // The page notes the user again when the server has answered.
    await page.evaluate("delete sessionStorage['console.user']");
    answered.resolve();
    await eventually(() => page.evaluate("sessionStorage['console.user'] !== undefined"));
    await eventually(async () => (await page.getByLabel("Model", { exact: true }).locator("option").count()) > 1);
    // A key that was deleted meanwhile is asked for again, before the typed text.
    await page.evaluate("sessionStorage['console.key'] = 'deleted'");
    await page.reload();
    await page.getByText("The server does not accept this key any more: Incorrect API key provided.").waitFor();
    await signIn(page, KEY);
    expect(await page.getByLabel("Input", { exact: true }).inputValue()).toBe("Typed at once.");
    expectClean(["401"]);
    await close();
  });

  it("ends at once: an answer about the key that arrives after signing out does not save the key again", async () => {
    const { page, expectClean, close } = await rig.open("#/chat");
    await signIn(page, KEY);
    const answered = Promise.withResolvers<void>();
    await page.route("**/v1/models", async (route) => {
      await answered.promise;
      await route.continue();
    });
    await page.reload();
    const reloads = Promise.withResolvers<void>();
    const reloaded = Promise.withResolvers<void>();
    await page.route(`${rig.gateway.url}/`, async (route) => {
      reloads.resolve();
      await reloaded.promise;
      await route.continue();
    });
    const clicked = page.getByRole("button", { name: "Sign out" }).click();
    await reloads.promise;
    const answer = page.waitForEvent("requestfinished", (request) => request.url().endsWith("/v1/models"));
    answered.resolve();
    await answer;
    reloaded.resolve();
    await clicked;
    await page.getByRole("dialog").waitFor();
    expect(await page.evaluate("Object.keys(sessionStorage)")).toEqual([]);
    expectClean();
    await close();
  });

  it("shows a root key no view of responses, because it has none", async () => {
    const { page, expectClean, close } = await rig.openSignedIn(ROOT_KEY, "#/chat");
    await page.getByRole("button", { name: "Sign out" }).waitFor();
    const views = await page.getByRole("navigation").getByRole("link").allTextContents();
    expect(views).not.toContain("Chat");
    expectClean(["403"]);
    await close();
  });

  it.each(LOOKS)("has an accessible form: %s", async (_, options) => {
    const { page, close } = await rig.open("", options);
    await page.getByRole("dialog").waitFor();
    await expectAccessible(page);
    await expectUsable(page);
    await close();
  });
});

it("leads to the views and sections that the docs' pictures show", async () => {
  const docs = fileURLToPath(new URL("../../docs/", import.meta.url));
  const pictures = JSON.parse(readFileSync(`${docs}images/console.json`, "utf8")) as Record<string, string[]>;
  const linksOf = async (key: string, at: string) => {
    const { page, close } = await rig.openSignedIn(key, at);
    await page.getByRole("navigation", { name: at === "#/chat" ? "Views" : "Sections" }).waitFor();
    const links = await page.locator(".bar nav > a, [aria-label=Sections] a").allTextContents();
    await close();
    return links;
  };
  const views = await linksOf(KEY, "#/chat");
  const files = await linksOf(KEY, "#/files");
  const operate = await linksOf(ROOT_KEY, "#/operate");
  for (const [name, links] of Object.entries(pictures)) {
    expect([[], views, files, operate], name).toContainEqual(links);
    expect(readdirSync(`${docs}images`)).toEqual(
      expect.arrayContaining([`console-${name}-light.png`, `console-${name}-dark.png`]),
    );
  }
  expect(Object.keys(pictures)).toEqual(expect.arrayContaining(views.map((label) => label.toLowerCase())));
  const shown = [...readFileSync(`${docs}console.md`, "utf8").matchAll(/console-([\w-]+)-light\.png/g)].map(
    ([, name]) => name,
  );
  expect(shown.toSorted()).toEqual(Object.keys(pictures).toSorted());
});

it("uses the system's theme until another one is chosen, which the browser keeps", async () => {
  const { page, expectClean, close } = await rig.openSignedIn(KEY, "", { colorScheme: "light" });
  const paper = () => page.evaluate("getComputedStyle(document.documentElement).backgroundColor");
  await page.getByLabel("Theme").waitFor();
  const light = await paper();
  await page.getByLabel("Theme").selectOption("dark");
  const dark = await paper();
  expect(dark).not.toBe(light);
  await page.reload();
  await page.getByLabel("Theme").waitFor();
  expect(await paper()).toBe(dark);
  expectClean();
  await close();
});

describe("the files", () => {
  const asBrowser = { headers: { accept: "text/html,application/xhtml+xml,*/*;q=0.8" } };
  const get = (path: string, init?: RequestInit) => fetch(rig.gateway.url + path, init);

  it("are for browsers: at / a browser gets the page, another program the list of endpoints", async () => {
    for (const init of [undefined, { headers: { accept: "application/json" } }, { headers: { accept: "*/*" } }]) {
      const answer = await get("/", init);
      expect(answer.headers.get("vary")).toBe("Accept");
      expect(await answer.json()).toMatchObject({ name: "responses-edge" });
    }
    const page = await get("/", asBrowser);
    expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
    const etag = page.headers.get("etag") ?? "";
    const again = await get("/", { headers: { ...asBrowser.headers, "if-none-match": etag } });
    expect([again.status, await again.text()]).toEqual([304, ""]);
  });

  it("have a policy under which no text in the page can become script", async () => {
    const page = await get("/", asBrowser);
    const html = await page.text();
    const names = [...html.matchAll(/\/assets\/[^"]+/g)].map(([name]) => name);
    expect(names.map((name) => name.split("/").at(-1))).toEqual(["icon.svg", "first.js"]);
    for (const answer of [page, ...(await Promise.all(names.map((name) => get(name))))]) {
      expect(answer.status).toBe(200);
      const policy = answer.headers.get("content-security-policy") ?? "";
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("require-trusted-types-for 'script'");
      expect(policy).not.toContain("unsafe");
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect(answer.headers.get("referrer-policy")).toBe("no-referrer");
    }
    // The policy has the hash of the one style, which is the page's own.
    expect(html.match(/<style/g)).toHaveLength(1);
    const [, style = ""] = /<style>([\s\S]*?)<\/style>/.exec(html) ?? [];
    const hash = createHash("sha256").update(style).digest("base64");
    expect(page.headers.get("content-security-policy")).toContain(`; style-src 'sha256-${hash}';`);
    expect(html).not.toMatch(/<script>|\son\w+=|style=/);
  });

  it("have only style rules that the browser understands and the page uses", async () => {
    const { page, close } = await rig.openSignedIn(KEY);
    await page.getByLabel("Theme").waitFor();
    const sheets = await page.evaluate(() => {
      const rulesOf = (list: CSSRuleList): CSSStyleRule[] =>
        [...list].flatMap((rule) =>
          rule instanceof CSSStyleRule
            ? [rule, ...rulesOf(rule.cssRules)]
            : rule instanceof CSSGroupingRule
              ? rulesOf(rule.cssRules)
              : [],
        );
      return [...document.styleSheets].map((sheet) => ({
        text: sheet.ownerNode?.textContent ?? "",
        rules: rulesOf(sheet.cssRules).map(({ selectorText, style, cssRules }) => ({
          selectorText,
          length: style.length + cssRules.length,
        })),
      }));
    });
    await close();
    const folder = fileURLToPath(new URL("../../packages/console/src/", import.meta.url));
    const names = readdirSync(folder);
    expect(sheets).toHaveLength(1);
    const scripts = names.filter((name) => !name.endsWith(".css")).map((name) => readFileSync(folder + name, "utf8"));
    for (const { text, rules } of sheets) {
      const written = text.replace(/\/\*[\s\S]*?\*\//g, "").matchAll(/([^{};]+)\{/g);
      const own = [...written].filter(([, selector = ""]) => !/^\s*(?:@|\d+%)/.test(selector));
      expect(rules).toHaveLength(own.length);
      // A theme changes colors (`light-dark`), and nothing else.
      expect(text).not.toContain("prefers-color-scheme");
      for (const { selectorText, length } of rules) {
        expect(length, selectorText).toBeGreaterThan(0);
        for (const [, word = ""] of selectorText.matchAll(/\.([a-z][\w-]*)/g)) {
          const stem = word.replace(/^(item|series|view|hljs)-.*/, "$1-");
          expect(
            scripts.some((script) => script.includes(stem)),
            `.${word}`,
          ).toBe(true);
        }
      }
    }
  });

  it("are 25 kB, compressed, until the page can be used", async () => {
    const html = await (await get("/", asBrowser)).text();
    const scripts = [...html.matchAll(/src="([^"]+)"/g)].map(([, name = ""]) => name);
    const texts = await Promise.all(scripts.map(async (name) => (await get(name)).text()));
    const bytes = [html, ...texts].map((text) => gzipSync(text).length);
    expect(bytes.reduce((sum, each) => sum + each, 0)).toBeLessThan(25_000);
  });

  it("are cached by browsers for ever, because another version has other names", async () => {
    const [name = ""] = /\/assets\/[^"]+first\.js/.exec(await (await get("/", asBrowser)).text()) ?? [];
    const [plain, compressed] = await Promise.all(
      ["identity", "gzip"].map((encoding) => get(name, { headers: { "accept-encoding": encoding } })),
    );
    expect(plain?.headers.get("cache-control")).toContain("immutable");
    expect([plain, compressed].map((answer) => answer?.headers.get("content-encoding"))).toEqual([null, "gzip"]);
    expect(await compressed?.text()).toBe(await plain?.text());
    const others = [name.replace(/\w{16}/, "0".repeat(16)), name.replace("first.js", "index.html"), `${name}x`];
    others.push(name.replace("first.js", "constructor"), name.replace("first.js", "x".repeat(5_000)));
    for (const other of others) expect((await get(other)).status).toBe(404);
  });
});
