import { readFileSync } from "node:fs";
import { toFile } from "openai";
import type { Decision } from "openai/resources/decisions";
import type { WebhookCreateParams } from "openai/resources/webhooks/webhooks";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connectSamples } from "../../packages/console/src/connect-samples.ts";
import { eventually } from "../e2e/support.ts";
import { BAD, type Hooks, startHooks } from "./hooks.ts";
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

/** Batches, webhook endpoints, decisions and moderation, as people use them. */

let hooks: Hooks;
let rig: ConsoleRig;
beforeAll(async () => {
  hooks = await startHooks();
  rig = await startConsole({ ...KEYED, ...hooks.variables });
});
afterAll(async () => {
  await rig?.close();
  hooks.close();
});

const client = () => rig.gateway.client({ apiKey: KEY });

/** A signed-in tab at an address. The test must leave it clean. */
async function looking(at: string, use: (page: Page) => Promise<void>, expected: string[] = []) {
  const tab = await rig.openSignedIn(KEY, at);
  await use(tab.page);
  tab.expectClean(expected);
  await tab.close();
}

const rows = (page: Page, region: string) =>
  page.getByRole("region", { name: region, exact: true }).locator("tbody tr");

const line = (id: string, body: object, url = "/v1/responses") =>
  JSON.stringify({ custom_id: id, method: "POST", url, body });
const say = (input: string, model = "simulator") => ({ model, input });

function upload(name: string, lines: readonly string[]) {
  return toFile(Buffer.from(lines.join("\n")), name).then((file) => client().files.create({ file, purpose: "batch" }));
}

async function begin(name: string, lines: readonly string[]) {
  const { id } = await upload(name, lines);
  return client().batches.create({ input_file_id: id, endpoint: "/v1/responses", completion_window: "24h" });
}

const over = (id: string) =>
  eventually(async () => {
    const batch = await client().batches.retrieve(id);
    return ["completed", "failed", "cancelled", "expired"].includes(batch.status) ? batch : undefined;
  });

/** The text of the file that a button saves. */
async function saved(page: Page, button: string): Promise<string> {
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: button }).click(),
  ]);
  return readFileSync(await download.path(), "utf8");
}

describe("a batch", () => {
  it("is created from an uploaded file, and shows its answers, errors and times at its end", () =>
    looking("#/batches", async (page) => {
      const lines = [line("a", say("Hello!")), line("b", say("Hello?")), line("c", say("", "no-such-model"))];
      const file = { name: "requests.jsonl", mimeType: "application/jsonl", buffer: Buffer.from(lines.join("\n")) };
      await page.getByLabel("Choose files").setInputFiles([file]);
      await page.getByLabel("Input file, of JSON lines").locator("option:checked", { hasText: file.name }).waitFor({
        state: "attached",
      });
      await page.getByLabel("Name").fill("Greetings");
      await page.getByLabel("Its outputs expire").selectOption({ label: "after a day" });
      await page.getByRole("button", { name: "Create" }).click();
      await page.getByRole("heading", { name: "Greetings" }).waitFor();
      await page.locator("header").getByText("completed", { exact: true }).waitFor();
      await page.getByText("2 of 3 answered, 1 failed").waitFor();
      const id = new URL(page.url()).hash.split("/").at(-1) ?? "";
      const batch = await client().batches.retrieve(id);
      expect(batch).toMatchObject({ endpoint: "/v1/responses", metadata: { name: "Greetings" } });
      const figures = await page.locator("dl.figures").allTextContents();
      expect(figures[0]).toMatch(new RegExp(`Input tokens\\s*${batch.usage?.input_tokens}\\s*cached`));
      expect(figures[1]).toMatch(/Created.*In progress.*Finalizing.*Completed/s);
      expect(figures[1]).not.toContain("Expires");
      const ids = (text: string) =>
        text
          .trimEnd()
          .split("\n")
          .map((each) => JSON.parse(each).custom_id);
      expect(await saved(page, "Download Input")).toBe(lines.join("\n"));
      expect(ids(await saved(page, "Download Answers"))).toEqual(["a", "b"]);
      expect(ids(await saved(page, "Download Errors"))).toEqual(["c"]);
      const answers = rows(page, "Files of the batch").filter({ hasText: "Answers" });
      expect(await answers.textContent()).not.toContain("never");
      await page.getByRole("link", { name: "All batches" }).click();
      const row = rows(page, "Batches").filter({ hasText: "Greetings" });
      expect(await row.textContent()).toContain("2 of 3 answered, 1 failed");
    }));

  it("with an invalid file names the fault and its line", () =>
    looking("#/files", async (page) => {
      await upload("wrong.jsonl", [line("a", say("Hello!")), line("a", say("Hello again!")), "{"]);
      await page.reload();
      await page.getByRole("link", { name: "Batch wrong.jsonl" }).click();
      await page.getByLabel("Input file, of JSON lines").locator("option:checked", { hasText: "wrong.jsonl" }).waitFor({
        state: "attached",
      });
      await page.getByRole("button", { name: "Create" }).click();
      await page.locator("header").getByText("failed", { exact: true }).waitFor();
      await expect.poll(() => rows(page, "Faults").count()).toBe(2);
      expect(await rows(page, "Faults").first().textContent()).toMatch(/^\s*2\s*custom_id/);
      expect(await page.getByRole("button", { name: "Download Answers" }).count()).toBe(0);
    }));

  it("with an empty file is not created, and the input stays", () =>
    looking("#/batches", async (page) => {
      const { id } = await upload("prose.txt", ["Once upon a time"]);
      await page.goto(`${rig.gateway.url}/#/batches?input_file_id=${id}`);
      await page.getByLabel("Name").fill("A tale");
      await page.getByRole("button", { name: "Create" }).click();
      await page.getByRole("alert").getByText("The first line of the file is no request").waitFor();
      expect(await page.getByLabel("Name").inputValue()).toBe("A tale");
    }));

  it("in progress is followed, and cancelled after a confirmation", () =>
    looking("#/batches", async (page) => {
      const slow = { ...say("Slow.", "simulator?tps=5&words=1000"), store: false };
      const { id } = await begin("slow.jsonl", [line("slow", slow), line("quick", say("Quick."))]);
      await page.goto(`${rig.gateway.url}/#/batches/${id}`);
      await page.getByText("1 of 2 answered").waitFor();
      expect(await page.getByRole("progressbar").getAttribute("max")).toBe("2");
      await page.locator("dl.figures").getByText("Expires").waitFor();
      await page.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Go back" }).click();
      expect((await client().batches.retrieve(id)).status).toBe("in_progress");
      await page.getByRole("button", { name: "Cancel" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Cancel the batch" }).click();
      await page.locator("header").getByText("cancelled", { exact: true }).waitFor();
      expect(await page.getByRole("button", { name: "Cancel" }).count()).toBe(0);
    }));

  it("that does not exist is said to be unknown", () =>
    looking(
      "#/batches/batch_unknown",
      async (page) => {
        await page.getByRole("alert").getByText("Batch with id 'batch_unknown' not found.").waitFor();
        await page.getByRole("link", { name: "All batches" }).click();
        await page.getByRole("heading", { name: "Batches", level: 2 }).waitFor();
      },
      ["404"],
    ));

  it("is on its tenant's list, which has pages, newest first", async () => {
    const { id: file } = await upload("many.jsonl", ["{"]);
    for (let index = 0; index < 52; index += 1) {
      const { id } = await client().batches.create({
        input_file_id: file,
        endpoint: "/v1/responses",
        completion_window: "24h",
        metadata: { name: `Number ${index}` },
      });
      if (index % 26 === 25) await over(id);
    }
    await looking("#/batches", async (page) => {
      await rows(page, "Batches").first().getByText("Number 51", { exact: true }).waitFor();
      expect(await rows(page, "Batches").count()).toBe(50);
      await page.getByRole("button", { name: "Show more" }).click();
      await rows(page, "Batches").nth(51).getByText("Number 0", { exact: true }).waitFor();
    });
    const { page, close } = await rig.openSignedIn(OTHER_KEY, "#/batches");
    await page.getByText("There are no batches.").waitFor();
    await close();
  });
});

describe("a webhook endpoint", () => {
  it("is created with the server's events, and shows its secret once; it is edited, tested, rotated and deleted", () =>
    looking(
      "#/webhooks",
      async (page) => {
        const dialog = page.getByRole("dialog");
        await page.getByRole("button", { name: "New endpoint" }).click();
        await page.locator("input:focus").fill("Orders");
        await page.getByLabel("URL").fill(hooks.accepting);
        const listed = await fetch(`${rig.gateway.url}/v1/webhook_event_types`, {
          headers: { authorization: `Bearer ${KEY}` },
        });
        const { data: types } = (await listed.json()) as { data: string[] };
        const choices = await page.getByRole("group", { name: "Events" }).getByRole("checkbox").all();
        expect(await Promise.all(choices.map((each) => each.getAttribute("value")))).toEqual(types);
        await page.getByLabel("response.completed").check();
        await page.getByRole("button", { name: "Create" }).click();
        const secret = await dialog.getByLabel("Signing secret").inputValue();
        expect(secret).toMatch(/^whsec_/);
        await page.getByRole("button", { name: "Done" }).click();
        const isShown = `document.body.innerHTML.includes(${JSON.stringify(secret)})`;
        expect(await page.evaluate(isShown)).toBe(false);
        await rows(page, "Webhook endpoints")
          .filter({ hasText: "response.completed" })
          .getByText(`whsec_…${secret.slice(-5)}`)
          .waitFor();

        await page.getByRole("link", { name: "Orders" }).click();
        await page.getByRole("button", { name: "Send a sample" }).click();
        await dialog.getByLabel("Sample of").selectOption("batch.failed");
        await dialog.getByRole("button", { name: "Send" }).click();
        await page
          .getByText("The endpoint answered the sample of batch.failed with status 200.", { exact: true })
          .last()
          .waitFor();
        await page.getByRole("button", { name: "Edit" }).click();
        expect(await dialog.getByLabel("response.completed").isChecked()).toBe(true);
        await expectAccessible(page);
        await dialog.getByLabel("response.completed").uncheck();
        await dialog.getByRole("button", { name: "Save" }).click();
        await dialog.getByRole("alert").getByText("event_types").waitFor();
        await dialog.getByLabel("batch.completed").check();
        await dialog.getByLabel("Name").fill("All orders");
        await dialog.getByRole("button", { name: "Save" }).click();
        await page.getByRole("heading", { name: "All orders" }).waitFor();
        const [kept] = (await client().webhooks.list()).data;
        expect(kept).toMatchObject({ name: "All orders", url: hooks.accepting, event_types: ["batch.completed"] });

        await page.getByRole("button", { name: "Rotate the secret" }).click();
        await dialog.getByRole("button", { name: "Rotate" }).click();
        expect(await dialog.getByLabel("Signing secret").inputValue()).not.toBe(secret);
        await dialog.getByRole("button", { name: "Done" }).click();
        await page.getByRole("button", { name: "Delete" }).click();
        await dialog.getByRole("button", { name: "Go back" }).click();
        expect((await client().webhooks.list()).data).toHaveLength(1);
        await page.getByRole("button", { name: "Delete" }).click();
        await dialog.getByRole("button", { name: "Delete" }).click();
        await page.getByText("There are no webhook endpoints.").waitFor();
        expect((await client().webhooks.list()).data).toEqual([]);
      },
      ["400"],
    ));

  it("with a forbidden address is not created, and the form names the field", () =>
    looking(
      "#/webhooks",
      async (page) => {
        await page.getByRole("button", { name: "New endpoint" }).click();
        await page.getByLabel("Name").fill("Inside");
        await page.getByLabel("URL").fill("http://10.0.0.1/hooks");
        await page.getByLabel("response.failed").check();
        await page.getByRole("button", { name: "Create" }).click();
        await page.getByRole("alert").getByText("(url)").waitFor();
        expect(await page.getByLabel("URL").inputValue()).toBe("http://10.0.0.1/hooks");
      },
      ["400"],
    ));

  it("lists its deliveries: the accepted ones, and those that are repeated", async () => {
    const made = await Promise.all(
      [hooks.accepting, hooks.failing].map((url, index) => {
        const body: WebhookCreateParams = { name: `Number ${index}`, url, event_types: ["response.completed"] };
        return client().webhooks.create(body);
      }),
    );
    const { id } = await client().responses.create({ ...say("Tell me"), background: true });
    await looking(`#/webhooks/${made[0]?.id}`, async (page) => {
      const delivery = rows(page, "Deliveries").filter({ hasText: id });
      await eventually(async () => {
        await page.getByRole("button", { name: "Refresh" }).click();
        return (await delivery.getByText("delivered").count()) > 0;
      });
      const [about, status, attempts, last, next] = await delivery.getByRole("cell").allTextContents();
      expect([about, status, attempts, next]).toEqual([id, "delivered", "1", "–"]);
      expect(last).toContain("answered with 200");
      await page.goto(`${rig.gateway.url}/#/webhooks/${made[1]?.id}`);
      await eventually(async () => {
        await page.getByRole("button", { name: "Refresh" }).click();
        return (await delivery.getByText("answered with 500").count()) > 0;
      });
      expect(await delivery.getByRole("cell").nth(1).textContent()).toBe("pending");
      expect(await delivery.getByRole("cell").nth(4).textContent()).toMatch(/\d{4}/);
      await page.getByRole("link", { name: id }).click();
      await page.getByText("You said: Tell me").waitFor();
    });
    for (const endpoint of made) await client().webhooks.delete(endpoint.id);
  });
});

describe("decisions", () => {
  it("are shown with the probability of each option, for questions of every kind", () =>
    looking("#/decisions", async (page) => {
      await page.getByRole("button", { name: "Put in an example" }).click();
      await page.getByRole("button", { name: "Remove question 1" }).click();
      await page.getByRole("button", { name: "Add a question" }).click();
      const added = page.getByRole("group", { name: "Question 3" });
      await added.locator("select:focus").waitFor();
      await added.getByLabel("Statement").fill("The parcel is late.");
      const [request] = await Promise.all([
        page.waitForRequest("**/v1/decisions"),
        page.getByRole("button", { name: "Ask" }).click(),
      ]);
      expect(request.postDataJSON()).toEqual({
        model: await page.getByLabel("Model").inputValue(),
        input: "My parcel has not arrived, and I want my money back.",
        questions: [
          {
            type: "choice",
            name: "team",
            instructions: "Who answers?",
            choices: ["billing", "shipping", "sales"].map((value) => ({ value })),
          },
          {
            type: "score",
            name: "anger",
            instructions: "How angry is the customer?",
            levels: ["calm", "annoyed", "furious"].map((label) => ({ label })),
          },
          { type: "predicate", instructions: "The parcel is late." },
        ],
      });
      const answer = await request.response();
      const { answers } = JSON.parse((await answer?.text()) ?? "{}") as Decision;
      const percent = (probability: number) => `${(100 * probability).toFixed(1)} %`;
      const shown = async (name: string) =>
        Promise.all(
          (await rows(page, `Probabilities of ${name}`).all()).map(async (row) => [
            await row.getByRole("rowheader").textContent(),
            (await row.getByRole("cell").textContent())?.trim(),
          ]),
        );
      await page.getByRole("region", { name: "Probabilities of anger" }).waitFor();
      const [team, anger, late] = answers;
      if (team?.type !== "choice" || anger?.type !== "score" || late?.type !== "predicate")
        throw new Error(JSON.stringify(answers));
      expect(await shown("team")).toEqual(
        team.probabilities
          .toSorted((one, other) => other.probability - one.probability)
          .map(({ value, probability }) => [value, percent(probability)]),
      );
      expect(await shown("anger")).toEqual(
        anger.probabilities.map(({ label, probability }) => [label, percent(probability)]),
      );
      expect((await shown("Question 3")).toSorted()).toEqual([
        ["false", percent(1 - late.probability)],
        ["true", percent(late.probability)],
      ]);
      const card = page.locator("section.card", { has: page.getByRole("heading", { name: "anger" }) });
      expect(await card.textContent()).toContain(`${anger.score.toFixed(2)} from 0 to 2`);
      await page.locator("summary", { hasText: "Request and answer as JSON" }).click();
      await page.getByText('"confidence"').waitFor();
    }));

  it("name the field that the server refuses, and the form outlives a reload", () =>
    looking(
      "#/decisions",
      async (page) => {
        await page.getByLabel("Input").fill("Hello");
        await page.getByLabel("Kind").selectOption("choice");
        await page.getByLabel("Question", { exact: true }).fill("Which?");
        await page.getByLabel("Choices").fill("one\none");
        await page.getByRole("button", { name: "Ask" }).click();
        await page.getByRole("alert").getByText("(questions[0].choices[1].value)").waitFor();
        await page.reload();
        expect(await page.getByLabel("Input").inputValue()).toBe("Hello");
        expect(await page.getByLabel("Choices").inputValue()).toBe("one\none");
      },
      ["400"],
    ));
});

describe("moderation", () => {
  it("shows the judgement of a text, and of a text with an image", () =>
    looking("#/moderation", async (page) => {
      await page.getByLabel("Text").fill(`How do I commit ${BAD}?`);
      await page.getByRole("button", { name: "Judge" }).click();
      await page.getByRole("heading", { name: "Judgement by guard" }).waitFor();
      const scores = page.getByRole("region", { name: "Scores", exact: true });
      expect(await scores.getByRole("rowheader").allTextContents()).toEqual(["illicit flagged", "violence "]);
      expect(
        await scores
          .getByRole("meter", { name: "Score of illicit" })
          .evaluate((meter) => (meter as HTMLMeterElement).value),
      ).toBe(0.97);
      await scores.getByText("0.310").waitFor();
      await page.locator("summary", { hasText: "other categories with a score of 0" }).click();
      await page.getByRole("rowheader", { name: "self-harm", exact: true }).waitFor();
      const png = Buffer.from(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "base64",
      );
      await page.getByLabel("Text").fill("A picture of the sea");
      await page.getByLabel("Add images").setInputFiles([{ name: "sea.png", mimeType: "image/png", buffer: png }]);
      await page.getByRole("list", { name: "Images" }).getByText("sea.png").waitFor();
      await page.getByRole("button", { name: "Judge" }).click();
      await page.getByText("not flagged", { exact: true }).waitFor();
      expect(hooks.judged.at(-1)).toMatchObject({
        text: "A picture of the sea",
        images: [`data:image/png;base64,${png.toString("base64")}`],
      });
      await page.getByRole("button", { name: "Remove sea.png" }).click();
      await page.getByRole("list", { name: "Images" }).waitFor({ state: "detached" });
    }));

  it("of a create is shown with its response, for input and output", async () => {
    const policy = { input: { mode: "block" as const } };
    const { id } = await client().responses.create({
      ...say(`How do I commit ${BAD}?`),
      moderation: { model: "omni-moderation-latest", policy },
    });
    await looking(`#/responses/${id}`, async (page) => {
      const card = page.locator("section.card", { has: page.getByRole("heading", { name: "Moderation" }) });
      await card.getByText("flagged", { exact: true }).first().waitFor();
      expect(await card.getByRole("heading", { level: 3 }).allTextContents()).toEqual(["Input by guard", "Output "]);
      await card.getByText("not_moderated").waitFor();
      await expectAccessible(page);
    });
  });
});

describe("connecting a client", () => {
  it("shows each client's commands and files, with this server's address and the chosen model, and never the key", () =>
    looking("#/connect", async (page) => {
      await page.getByLabel("Model", { exact: true }).selectOption("simulator-reasoning");
      await page.getByText("once for each terminal").waitFor();
      const samples = connectSamples({ baseUrl: `${rig.gateway.url}/v1`, model: "simulator-reasoning" });
      for (const { label, install, files, run } of samples) {
        await page.getByRole("link", { name: label, exact: true }).click();
        const shown = page.getByRole("region", { name: label, exact: true });
        await shown.waitFor();
        const blocks = await shown.getByLabel("Code", { exact: true }).allTextContents();
        expect(blocks, label).toEqual([...(install ? [install] : []), ...files.map(({ text }) => text), run]);
        for (const { name } of files) await shown.getByRole("heading", { name: `Save this as ${name}` }).waitFor();
      }
      expect(await page.content()).not.toContain(KEY);
      await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
      await page.getByRole("button", { name: "Copy" }).last().click();
      expect(await page.evaluate("navigator.clipboard.readText()")).toBe(samples.at(-1)?.run);
    }));
});

describe("the views", () => {
  it("show the tab's present address when their code arrives", async () => {
    const { id } = await begin("quick.jsonl", [line("a", say("Hello!"))]);
    const { page, close } = await rig.openSignedIn(KEY, "#/chat");
    const asked = Promise.withResolvers<void>();
    const held = Promise.withResolvers<void>();
    await page.route("**/later.js", async (route) => {
      asked.resolve();
      await held.promise;
      await route.continue();
    });
    await page.reload();
    await page.getByRole("link", { name: "Batches" }).click();
    await asked.promise;
    await page.evaluate(`location.hash = "#/batches/${id}"`);
    held.resolve();
    await page.getByRole("heading", { name: id }).waitFor();
    await close();
  });

  it.each(LOOKS)("are accessible, and fit the screen: %s", async (_, options) => {
    const lines = [line("a", say("Hello!")), line("b", say("", "no-such-model"))];
    const { id: batch } = await begin("sample.jsonl", lines);
    const { id: wrong } = await begin("wrong.jsonl", ["{"]);
    const body: WebhookCreateParams = { name: "Sample", url: hooks.accepting, event_types: ["response.completed"] };
    const { id: endpoint } = await client().webhooks.create(body);
    const { id: response } = await client().responses.create({ ...say("Hello"), background: true });
    const moderation = { model: "omni-moderation-latest" };
    const { id: judged } = await client().responses.create({ ...say(BAD), moderation });
    await Promise.all([over(batch), over(wrong)]);
    const { page, close } = await rig.openSignedIn(KEY, "#/batches", options);
    const places: [at: string, there: string][] = [
      ["#/batches", "tbody tr"],
      [`#/batches/${batch}`, "tbody tr"],
      [`#/batches/${wrong}`, "tbody tr"],
      ["#/webhooks", "tbody tr"],
      [`#/webhooks/${endpoint}`, "header h2"],
      ["#/moderation", "textarea"],
      ["#/decisions", "#decision-input"],
      ["#/connect/codex", ".code-block"],
      [`#/responses/${judged}`, "meter"],
    ];
    for (const [at, there] of places) {
      await page.goto(`${rig.gateway.url}/${at}`);
      await page.locator(`.view:not([hidden]) ${there}`).first().waitFor();
      if (at.includes(endpoint)) {
        await eventually(async () => {
          await page.getByRole("button", { name: "Refresh" }).click();
          return (await rows(page, "Deliveries").filter({ hasText: response }).count()) > 0;
        });
      }
      if (there === "textarea") {
        await page.getByLabel("Text").fill(BAD);
        await page.getByRole("button", { name: "Judge" }).click();
        await page.getByRole("heading", { name: "Judgement" }).waitFor();
      }
      if (at === "#/decisions") {
        await page.getByRole("button", { name: "Put in an example" }).click();
        await page.getByRole("button", { name: "Ask" }).click();
        await page.getByRole("region", { name: "Probabilities of anger" }).waitFor();
      }
      for (const summary of await page.locator(".view:not([hidden]) details > summary").all()) {
        if (await summary.isVisible()) await summary.click();
      }
      await expectAccessible(page);
      await expectUsable(page);
      if (!at.includes(endpoint)) continue;
      for (const button of ["Edit", "Rotate the secret"]) {
        await page.getByRole("button", { name: button }).click();
        await page.getByRole("dialog").waitFor();
        await expectAccessible(page);
        await expectUsable(page);
        await page.getByRole("button", { name: "Go back" }).click();
      }
    }
    await client().webhooks.delete(endpoint);
    await close();
  });
});
