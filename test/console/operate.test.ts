import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { USAGE_REPORTS } from "@responses-edge/usage-limits";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { ask, create, type MadeKey, makeKey, newTenant, usageOf } from "../e2e/key-support.ts";
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

/** An operator's tasks, in a browser. */

let rig: ConsoleRig;
beforeAll(async () => {
  rig = await startConsole({ ...KEYED, RESPONSE_INDEX: "true" });
});
afterAll(() => rig.close());

/** The server's answer to a root key that asks for the models: the key has no tenant. */
const EXPECTED = ["403"];

const openOperate = (section: string) => rig.openSignedIn(ROOT_KEY, `#/operate/${section}`);

const rowOf = (page: Page, text: string) => page.getByRole("row").filter({ hasText: text });

describe("keys", () => {
  it("are created, shown once, disabled and enabled; a console with a disabled key says so", async () => {
    const tenant = newTenant();
    const { page, expectClean, close } = await openOperate("keys");
    await page.getByRole("button", { name: "New key" }).click();
    await page.locator("input:focus").fill("A web app");
    await page.getByRole("dialog").getByLabel("Tenant").fill(tenant);
    await page.locator("summary", { hasText: /^Limits$/ }).click();
    await page.getByLabel("Requests per minute", { exact: true }).fill("600");
    await page.getByRole("button", { name: "Create the key" }).click();
    const value = await page.getByRole("dialog").getByLabel("API key").inputValue();
    await page.getByRole("button", { name: "Done" }).click();
    await rowOf(page, "A web app").getByText("requests per minute: 600").waitFor();
    const isShown = "[...document.querySelectorAll('input')].some(({ value }) => value.startsWith('sk-'))";
    expect(await page.evaluate(isShown)).toBe(false);

    const user = await rig.openSignedIn(value, "#/chat");
    await user.page.getByRole("textbox", { name: "Input", exact: true }).fill("I have typed this.");
    await page.getByRole("button", { name: "Disable A web app" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Disable" }).click();
    await rowOf(page, "A web app").getByText("disabled").waitFor();
    await eventually(async () => (await create(rig.gateway, value)).status === 401);
    // Another request of the page may have been refused before: the dialog is over the button then.
    await user.page.getByRole("button", { name: "Send" }).dispatchEvent("click");
    await user.page.getByRole("dialog").getByText("The server does not accept this key any more").waitFor();
    await page.getByRole("button", { name: "Enable A web app" }).click();
    await page.getByRole("button", { name: "Disable A web app" }).waitFor();
    await eventually(async () => (await create(rig.gateway, value)).status === 200);
    await signIn(user.page, value);
    const typed = user.page.getByRole("textbox", { name: "Input", exact: true });
    expect(await typed.inputValue()).toBe("I have typed this.");
    await user.close();
    expectClean(EXPECTED);
    await close();
  });

  it("of API_KEYS are listed, and cannot be changed here", async () => {
    const { page, expectClean, close } = await openOperate("keys?tenant=acme");
    const row = page.getByRole("row").filter({ hasText: "API_KEYS" });
    await row.getByRole("link", { name: "acme" }).waitFor();
    expect(await row.count()).toBe(1);
    expect(await row.getByRole("button").count()).toBe(0);
    expectClean(EXPECTED);
    await close();
  });

  it("are rotated and deleted after a confirmation", async () => {
    const key = await makeKey(rig.gateway, newTenant(), undefined, { name: "To go" });
    const { page, expectClean, close } = await openOperate("keys");
    await page.getByRole("button", { name: "Rotate To go" }).click();
    await page.getByRole("dialog").getByRole("combobox").selectOption({ label: "no longer" });
    await page.getByRole("dialog").getByRole("button", { name: "Rotate" }).click();
    const value = await page.getByRole("dialog").getByLabel("API key").inputValue();
    await page.getByRole("button", { name: "Done" }).click();
    expect((await create(rig.gateway, value)).status).toBe(200);
    expect((await create(rig.gateway, key)).status).toBe(401);
    await page.getByRole("button", { name: "Delete To go" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Go back" }).click();
    expect(await rowOf(page, "To go").count()).toBe(1);
    await page.getByRole("button", { name: "Delete To go" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await rowOf(page, "To go").waitFor({ state: "detached" });
    await eventually(async () => (await create(rig.gateway, value)).status === 401);
    expectClean(EXPECTED);
    await close();
  });

  it("and tenants have limits, which the server checks: the form shows a refusal and loses no input", async () => {
    const tenant = newTenant();
    await makeKey(rig.gateway, tenant, { budget: { usd: 5, window: "week" }, tier: "gold" }, { name: "Limited" });
    const { page, close } = await openOperate("keys");
    await page.getByRole("button", { name: "Limits Limited" }).click();
    const dialog = page.getByRole("dialog");
    expect(await dialog.getByLabel("Budget in US dollars").inputValue()).toBe("5");
    expect(await dialog.getByLabel("Budget begins anew").inputValue()).toBe("week");
    await dialog.locator("summary", { hasText: "Further limits" }).click();
    expect(JSON.parse(await dialog.getByLabel("Others, as JSON").inputValue())).toEqual({ tier: "gold" });
    await expectAccessible(page);
    await dialog.getByLabel("Others, as JSON").fill('{"teir": "gold"}');
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.getByRole("alert").getByText("teir").waitFor();
    await dialog.getByLabel("Others, as JSON").fill('{"tier": "silver"}');
    await dialog.getByLabel("Models").fill("sim*, other");
    await dialog.getByRole("button", { name: "Save" }).click();
    await rowOf(page, "Limited")
      .getByText("Budget in US dollars: 5 · Budget begins anew: each week · Models: sim*, other · tier: silver")
      .waitFor();
    await page.getByRole("button", { name: "Tenant limits" }).click();
    await dialog.getByLabel("Tenant").fill(tenant);
    await dialog.getByRole("button", { name: "Show" }).click();
    await dialog.getByLabel("Tokens per minute", { exact: true }).fill("1000");
    await dialog.locator("summary", { hasText: "Further limits" }).click();
    await dialog.getByLabel("Store nothing").check();
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.waitFor({ state: "detached" });
    const { limits } = await ask<{ limits: object }>(rig.gateway, "GET", `/v1/admin/tenants/${tenant}`);
    expect(limits).toEqual({ tokens_per_minute: 1000, force_store_false: true });
    await close();
  });
});

it("forms change the configuration: a server, a route and a price apply at once, are exported, and are reset", async () => {
  const { page, expectClean, close } = await openOperate("configuration");
  const dialog = page.getByRole("dialog");
  const save = () => dialog.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Add a server" }).click();
  await dialog.getByLabel("Name").fill("spare");
  await dialog.getByLabel("URL").fill("ftp://nowhere");
  await save();
  await dialog.getByRole("alert").getByText("upstreams.spare.url").waitFor();
  await dialog.getByLabel("URL").fill(`${rig.gateway.vllm.url.replace("127.0.0.1", "localhost")}/v1`);
  await dialog.getByLabel("Weight").fill("0");
  await dialog.getByLabel("Models").fill("simulator, quick = simulator");
  await dialog.getByLabel("API key of the server").fill("key-of-spare");
  await save();
  await rowOf(page, "spare").getByText("Weight: 0 · Models: simulator, quick = simulator").waitFor();
  await page.getByRole("button", { name: "Add a route" }).click();
  await dialog.getByLabel("Name that clients say").fill("chat");
  await dialog.getByLabel("Models").fill("simulator 95, simulator-reasoning 5");
  await dialog.getByLabel("In its place").fill("simulator");
  await expectAccessible(page);
  await save();
  await rowOf(page, "chat")
    .getByText("Models: simulator 95, simulator-reasoning 5 · In its place: simulator")
    .waitFor();
  await page.getByRole("button", { name: "Add a price" }).click();
  await dialog.getByLabel("Model, or *").fill("*");
  await dialog.getByLabel("Input, dollars").fill("3");
  await dialog.getByLabel("Output").fill("15");
  await save();
  await page.getByText("Input, dollars for a million tokens: 3 · Output: 15").waitFor();
  const key = await makeKey(rig.gateway, newTenant());
  expect((await create(rig.gateway, key, { model: "chat" })).status).toBe(200);

  await page.getByRole("button", { name: "Change spare" }).click();
  await dialog.getByLabel("Drain").check();
  await save();
  await rowOf(page, "spare").getByText("Drain ·").waitFor();
  const saving = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save as a file" }).click();
  const { values } = await ask<{ values: object }>(rig.gateway, "GET", "/v1/admin/configuration");
  const file = readFileSync(await (await saving).path(), "utf8");
  const withoutSecrets = JSON.stringify(values, (_, value) => (value === "****" ? undefined : value));
  expect(parse(file)).toEqual(JSON.parse(withoutSecrets));
  expect(file).toContain("spare");
  expect(file).not.toContain("api_key");

  await page.getByRole("button", { name: "Remove spare" }).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await rowOf(page, "spare").getByText("removed").waitFor();
  for (const name of ["spare", "chat", "*"]) {
    await page.getByRole("button", { name: `Take back ${name}` }).click();
    await rowOf(page, name).waitFor({ state: "detached" });
  }
  expect(await ask(rig.gateway, "GET", "/v1/admin/configuration")).toMatchObject({ overrides: {} });
  expectClean([...EXPECTED, "400"]);
  await close();
});

/** Makes a key and uses it until the usage is counted. */
async function usedKey(): Promise<MadeKey> {
  const key = await makeKey(rig.gateway, newTenant(), {});
  expect((await create(rig.gateway, key, { input: "Hello there" })).status).toBe(200);
  await eventually(() => usageOf(rig.gateway, key));
  return key;
}

it("usage has a chart, and a table with the same figures", async () => {
  const { tenant } = await usedKey();
  const { page, expectClean, close } = await openOperate("usage");
  await page.getByLabel("Tenant").fill(tenant);
  await page.getByLabel("Tenant").press("Enter");
  const chart = page.getByRole("figure");
  await chart.getByText("Tokens, the last 24 hours", { exact: true }).waitFor();
  await chart.getByText(/^\d+ in all$/).waitFor();
  // The bar under the cursor is that of this hour.
  const { width, height } = await eventually(async () => {
    const box = await chart.locator(".u-over").boundingBox();
    return box && box.width > 0 ? box : undefined;
  });
  await chart.locator(".u-over").hover({ position: { x: width - 5, y: height / 2 } });
  await chart.getByText(/Other input \d+, Output \d+$/).waitFor();
  await page.getByText("The figures as a table").click();
  const headings = await page.getByRole("region", { name: "Usage" }).getByRole("columnheader").allTextContents();
  expect(headings).toEqual(["From", "Cached input", "Other input", "Output"]);
  await page.getByLabel("Metric").selectOption({ label: "Requests" });
  await page.getByLabel("Group by").selectOption({ label: "Model" });
  await chart.getByText("Requests, the last 24 hours", { exact: true }).waitFor();
  const sums = page.getByRole("region", { name: /^Models,/ }).getByRole("row", { name: "simulator" });
  await sums.waitFor();
  expect((await sums.getByRole("cell").allTextContents()).slice(0, 2)).toEqual(["1", "0"]);
  const table = page.getByRole("region", { name: "Usage" });
  await table.getByRole("columnheader", { name: "simulator" }).waitFor();
  const rows = await table.getByRole("row").allTextContents();
  expect(rows).toHaveLength(25);
  expect(rows.at(-1)).toMatch(/\d\d:\d\d(?: [AP]M)?1$/);
  // The address has the choices, whatever somebody writes into it.
  await page.goto(`${rig.gateway.url}/#/operate/usage?kind=constructor&measure=toString&tenant=${tenant}`);
  await chart.getByText("Tokens, the last 24 hours", { exact: true }).waitFor();
  expectClean(EXPECTED);
  await close();
});

describe("requests", () => {
  /** A tenant with an answered request, and another with one that its model server refused. */
  async function someRequests() {
    const [good, bad] = [await makeKey(rig.gateway, newTenant()), await makeKey(rig.gateway, newTenant())];
    expect((await create(rig.gateway, good)).status).toBe(200);
    expect((await create(rig.gateway, bad, { model: "simulator?fault=http:500" })).status).toBe(502);
    const path = (tenant: string) => `/v1/admin/requests?tenant=${tenant}`;
    for (const { tenant } of [good, bad]) {
      await eventually(async () => {
        const { data } = await ask<{ data: object[] }>(rig.gateway, "GET", path(tenant));
        return data.length === 1;
      });
    }
    return { good, bad };
  }

  it("of all tenants say how they ended, in the model server's own words, too; the address has the filters", async () => {
    const { good, bad } = await someRequests();
    const { page, expectClean, close } = await openOperate("requests");
    const answered = rowOf(page, good.tenant);
    await answered.getByText("completed").waitFor();
    expect(await answered.textContent()).toMatch(/POST \/v1\/responses.*\d m?s.*simulator.*\d+ → \d+/s);
    await answered.getByRole("button", { name: "resp_" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText(/^[\d.]+ m?s of [\d.]+ m?s: /).waitFor();
    const times = dialog.getByRole("list", { name: "Times" });
    for (const name of ["Round 1", "message"]) await times.getByText(name, { exact: true }).waitFor();
    await expectAccessible(page);
    await dialog.getByRole("button", { name: "Close" }).click();
    const failed = rowOf(page, bad.tenant);
    await failed.getByText("Simulated fault.").waitFor();
    await failed.getByText("502").waitFor();
    await failed.getByRole("link", { name: bad.tenant }).click();
    await answered.waitFor({ state: "detached" });
    expect(new URL(page.url()).hash).toBe(`#/operate/requests?tenant=${bad.tenant}`);
    await page.getByLabel("Took at least, seconds").fill("3600");
    await page.getByRole("button", { name: "Show", exact: true }).click();
    await page.getByText("No request matches all filters.").waitFor();
    expect(new URL(page.url()).hash).toBe(`#/operate/requests?tenant=${bad.tenant}&slow=3600`);
    await page.goto(`${rig.gateway.url}/#/operate/requests?tenant=${bad.tenant}&status=error`);
    await failed.waitFor();
    await page.goto(`${rig.gateway.url}/#/operate/requests?api_key_id=${good.id}&status=completed`);
    await answered.waitFor();
    expect(await failed.count()).toBe(0);
    expectClean(EXPECTED);
    await close();
  });

  it("are behind each point of the overview, which is the first section, and behind each time of its table", async () => {
    const { bad } = await someRequests();
    const { page, expectClean, close } = await rig.openSignedIn(ROOT_KEY, "#/operate");
    await page.getByRole("link", { name: "1 hour" }).click();
    const chart = page.getByRole("figure").filter({ hasText: "Requests" });
    await page.getByText(/[1-9]\d* of them with an error/).waitFor();
    const { width, height } = await eventually(async () => {
      const box = await chart.locator(".u-over").boundingBox();
      return box && box.width > 0 ? box : undefined;
    });
    // The last bars: a minute may just have begun.
    await chart.locator(".u-over").click({ position: { x: width - 2, y: height / 2 } });
    await page.getByRole("heading", { name: "Requests" }).waitFor();
    const [, from = "", until = ""] = /from=([^&]+)&until=([^&]+)$/.exec(page.url()) ?? [];
    const seconds = (time: string) => Date.parse(decodeURIComponent(time)) / 1_000;
    expect(seconds(until) - seconds(from)).toBe(60);
    await page.goBack();
    await page.getByText("The figures as a table").click();
    const table = page.getByRole("region", { name: "Overview" });
    const rows = table.getByRole("row").filter({ has: page.getByRole("link") });
    expect(await rows.count()).toBe(60);
    const errors = rows.filter({ has: page.locator("td:nth-of-type(2)", { hasText: /^[1-9]/ }) });
    await errors.last().getByRole("link").click();
    await rowOf(page, bad.tenant).getByText("Simulated fault.").waitFor();
    expectClean(EXPECTED);
    await close();
  });
});

it("usage of each kind is shown, and costs by the day", async () => {
  const { page, expectClean, close } = await openOperate("usage");
  await page.getByRole("heading", { name: "Usage" }).waitFor();
  const kinds = await page.getByLabel("Usage of").locator("option").all();
  const paths = await Promise.all(kinds.map((each) => each.getAttribute("value")));
  expect(paths).toEqual([...Object.values(USAGE_REPORTS).map(({ path }) => path), "costs"]);
  for (const path of paths) {
    const answered = page.waitForResponse((answer) => answer.url().includes(`/${path}?`));
    await page.getByLabel("Usage of").selectOption(path);
    expect((await answered).status(), path ?? "").toBe(200);
  }
  expect(await page.getByLabel("Time").locator("option").allTextContents()).toEqual(["The last 30 days"]);
  expectClean(EXPECTED);
  await close();
});

it("usage of vector stores has their present size and the earlier ones", async () => {
  const key = await makeKey(rig.gateway, newTenant(), {});
  const client = rig.gateway.client({ apiKey: key.value });
  const file = await client.files.create({ file: new File(["Owls hoot."], "owls.txt"), purpose: "assistants" });
  const { id } = await client.vectorStores.create({});
  await client.vectorStores.files.createAndPoll(id, { file_id: file.id }, { pollIntervalMs: 20 });
  const path = `/v1/organization/usage/vector_stores?start_time=${Math.floor(Date.now() / 1000)}&project_ids=${key.tenant}`;
  await eventually(async () => {
    const { data } = await ask<{ data: { results: object[] }[] }>(rig.gateway, "GET", path);
    return data.some(({ results }) => results.length > 0);
  });
  const { usage_bytes: bytes } = await client.vectorStores.retrieve(id);
  const { page, expectClean, close } = await openOperate("usage");
  await page.getByLabel("Metric").selectOption({ label: "Requests" });
  await page.getByLabel("Usage of").selectOption({ label: "Vector stores" });
  await page.getByLabel("Tenant").fill(key.tenant);
  await page.getByLabel("Tenant").press("Enter");
  await page.getByText("Bytes, vector stores, the last 24 hours", { exact: true }).waitFor();
  await page.getByText(`${bytes} B now`, { exact: true }).waitFor();
  expect(await page.getByLabel("Metric").locator("option:checked").textContent()).toBe("Bytes");
  await page.getByLabel("Group by").selectOption({ label: "Tenant" });
  await page.locator(".legend").getByText(key.tenant).waitFor();
  expectClean(EXPECTED);
  await close();
});

it("a live run is shown and cancelled after a confirmation, and the audit log names who did it", async () => {
  const key = await makeKey(rig.gateway, newTenant());
  const client = rig.gateway.client({ apiKey: key.value });
  const model = "simulator?words=40&fault=stall:5";
  const { id } = await client.responses.create({ model, input: "Do not stop", background: true });
  const { page, expectClean, close } = await openOperate("runs");
  const row = rowOf(page, id);
  await eventually(async () => {
    if ((await row.count()) > 0) return true;
    await page.getByRole("button", { name: "Refresh" }).click();
    return false;
  });
  expect(await row.textContent()).toContain(key.tenant);
  await page.getByRole("button", { name: `Cancel ${id}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Go back" }).click();
  expect((await client.responses.retrieve(id)).status).toBe("in_progress");
  await page.getByRole("button", { name: `Cancel ${id}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the run" }).click();
  await row.waitFor({ state: "detached" });
  expect((await client.responses.retrieve(id)).status).toBe("cancelled");
  await page.getByRole("link", { name: "Audit log" }).click();
  await rowOf(page, id).getByText("response.cancelled").waitFor();
  expect(await rowOf(page, id).textContent()).toContain("ops");
  expectClean(EXPECTED);
  await close();
});

describe("the sections", () => {
  beforeAll(usedKey);

  it.each(LOOKS)("are accessible, and fit the screen: %s", async (_, options) => {
    const { page, close } = await rig.openSignedIn(ROOT_KEY, "#/operate/servers", options);
    const sections: [link: string, there: string][] = [
      ["Overview", ".u-over"],
      ["Requests", "tbody tr"],
      ["Model servers", "table"],
      ["Configuration", "tbody tr"],
      ["Live runs", "p.note"],
      ["Keys and limits", "tbody tr"],
      ["Usage", ".u-over"],
      ["Audit log", "tbody tr"],
    ];
    for (const [link, there] of sections) {
      await page.getByRole("link", { name: link, exact: true }).click();
      await page.getByRole("heading", { name: link, exact: true }).waitFor();
      await page.locator(`.view-operate ${there}`).first().waitFor();
      for (const summary of await page.locator(".stack > .card > summary").all()) await summary.click();
      await expectAccessible(page);
      await expectUsable(page);
    }
    await close();
  });
});

it("show a tenant's stored amounts and their limits beside its usage", async () => {
  const key = await makeKey(rig.gateway, newTenant(), { stored_bytes: 2_000_000, stored_responses: 7 });
  expect((await create(rig.gateway, key, { input: "Hello there" })).status).toBe(200);
  const path = `/v1/organization/usage/storage?project_ids=${key.tenant}`;
  await eventually(async () => {
    const { data } = await ask<{ data: { results: { num_responses: number }[] }[] }>(rig.gateway, "GET", path);
    return data[0]?.results[0]?.num_responses === 1;
  });
  await ask(rig.gateway, "POST", `/v1/admin/tenants/${key.tenant}`, { limits: { stored_bytes: 2_000_000 } });
  const { page, expectClean, close } = await openOperate("usage");
  await page.getByLabel("Tenant").fill(key.tenant);
  await page.getByLabel("Tenant").press("Enter");
  const row = page.getByRole("region", { name: "Stored now" }).getByRole("row", { name: key.tenant });
  await row.getByText("of 2.0 MB").waitFor();
  expect(await row.getByRole("cell").allTextContents()).toEqual([
    expect.stringMatching(/^[\d.]+ kB of 2\.0 MB$/),
    "1",
    "0",
  ]);
  expectClean(EXPECTED);
  await close();
});

it("show the audit log in pages, and filtered", async () => {
  const tenant = newTenant();
  for (let index = 0; index < 52; index += 1) await makeKey(rig.gateway, tenant);
  const { page, expectClean, close } = await openOperate("audit");
  await page.getByLabel("Tenant").fill(tenant);
  await page.getByLabel("What was done").selectOption("api_key.created");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  const rows = page.getByRole("region", { name: "Audit log" }).getByRole("row").filter({ hasText: tenant });
  await eventually(async () => (await rows.count()) === 50);
  await page.getByRole("button", { name: "Show more" }).click();
  await eventually(async () => (await rows.count()) === 52);
  expect(await page.getByRole("button", { name: "Show more" }).count()).toBe(0);
  // The address has the filters.
  await page.reload();
  await eventually(async () => (await rows.count()) === 50);
  expect(await page.getByLabel("What was done").inputValue()).toBe("api_key.created");
  await page.goBack();
  await rows.getByText("api_key.created").first().waitFor();
  expect(await page.getByLabel("What was done").inputValue()).toBe("");
  expect(await page.getByLabel("Tenant").inputValue()).toBe("");
  expectClean(EXPECTED);
  await close();
});

it("the audit log can be filtered by each action", async () => {
  const source = fileURLToPath(new URL("../../src/", import.meta.url));
  const texts = readdirSync(source, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => readFileSync(join(source, name), "utf8"));
  const noted = texts.flatMap((text) => [...text.matchAll(/type: "([a-z_]+\.[a-z_]+)",(?: actor[^}]*)? target/g)]);
  const { page, close } = await openOperate("audit");
  await page.getByRole("heading", { name: "Audit log" }).waitFor();
  const choices = await page.getByLabel("What was done").locator("option").allTextContents();
  expect(noted.length).toBeGreaterThan(15);
  expect(choices).toEqual(expect.arrayContaining(noted.map(([, type]) => type)));
  await close();
});

it("a server without a guard says so in the view of moderation", async () => {
  const { page, expectClean, close } = await rig.openSignedIn(KEY, "#/moderation");
  await page.getByText("This server has no guard").waitFor();
  expect(await page.getByRole("button", { name: "Judge" }).count()).toBe(0);
  expectClean();
  await close();
});

describe("without a root key", () => {
  it("the view says that keys need one, and shows the model server's health", async () => {
    const open = await startConsole();
    try {
      const { page, expectClean, close } = await open.open("#/operate");
      await page.getByText("It answers.").waitFor();
      await page.getByRole("link", { name: "Keys and limits" }).click();
      await page.getByRole("heading", { name: "This needs a root key" }).waitFor();
      await open.gateway.vllm.close();
      await page.getByRole("link", { name: "Model servers" }).click();
      await page.getByText("It does not answer: requests fail.").waitFor();
      expectClean(["503"]);
      await close();
    } finally {
      await open.close();
    }
  });
});
