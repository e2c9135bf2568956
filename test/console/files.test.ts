import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { textPdf } from "../../packages/file-text/test/corpus.ts";
import { lastPrompt } from "../e2e/support.ts";
import {
  type ConsoleRig,
  expectAccessible,
  expectUsable,
  KEY,
  KEYED,
  LOOKS,
  OTHER_KEY,
  startConsole,
  type Tab,
} from "./support.ts";

/** Files and vector stores, as people use them. */

let rig: ConsoleRig;
beforeAll(async () => {
  rig = await startConsole({ ...KEYED, EMBEDDINGS_MODEL: "simulator", MAX_FILE_BYTES: "1000000" });
});
afterAll(() => rig.close());

/** A signed-in tab at an address of the view. The test must leave it clean. */
async function looking(at: string, use: (page: Page, tab: Tab) => Promise<void>, expected: string[] = []) {
  const tab = await rig.openSignedIn(KEY, at);
  await tab.page.getByRole("navigation", { name: "Sections" }).waitFor();
  await use(tab.page, tab);
  tab.expectClean(expected);
  await tab.close();
}

/** Drops files onto an element, as a file manager does. */
async function drop(page: Page, onto: string, files: Record<string, string>): Promise<void> {
  const transfer = await page.evaluateHandle((given) => {
    const transfer = new DataTransfer();
    for (const [name, text] of Object.entries(given)) transfer.items.add(new File([text], name));
    return transfer;
  }, files);
  for (const type of ["dragover", "drop"]) await page.dispatchEvent(onto, type, { dataTransfer: transfer });
}

const rows = (page: Page, region: string) => page.getByRole("region", { name: region }).locator("tbody tr");

const TEXTS = {
  "wings.txt": "The wing stalls when the angle of attack grows too large. Lift is lost, and drag grows.",
  "bread.txt": "Bread is baked of flour, water, salt and yeast. The dough rests overnight.",
};

async function newStore(page: Page, name: string, days = ""): Promise<void> {
  await page.getByRole("button", { name: "New vector store" }).click();
  await page.locator("input:focus").fill(name);
  await page.getByLabel("Expires after days without use").fill(days);
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name, level: 2 }).waitFor();
}

/** Creates a vector store with the form, and drops the texts into it. Returns its id. */
async function filledStore(page: Page, name: string, days = ""): Promise<string> {
  await newStore(page, name, days);
  await drop(page, ".uploads", TEXTS);
  await page.getByText("2 of 2 indexed").first().waitFor();
  return new URL(page.url()).hash.split("/").at(-1) ?? "";
}

const client = () => rig.gateway.client({ apiKey: KEY });

describe("files", () => {
  it("are uploaded by drop and by button, several at once, and are shown with size and purpose", () =>
    looking("#/files", async (page) => {
      await page.getByLabel("Purpose", { exact: true }).selectOption("user_data");
      await page.getByLabel("Expires", { exact: true }).selectOption({ label: "after a day" });
      await drop(page, ".uploads", { "one.txt": "one", "two.md": "two".repeat(1_000) });
      await rows(page, "Files").filter({ hasText: "two.md" }).getByText("3.0 kB").waitFor();
      await rows(page, "Files").filter({ hasText: "one.txt" }).getByText("user_data").waitFor();
      const chosen = { name: "three.txt", mimeType: "text/plain", buffer: Buffer.from("three") };
      await page.getByLabel("Choose files").setInputFiles([chosen]);
      await rows(page, "Files").filter({ hasText: "three.txt" }).waitFor();
      expect(await page.locator(".upload-list").getByText("uploaded", { exact: true }).count()).toBe(3);
      const { data } = await client().files.list();
      const one = data.find(({ filename }) => filename === "one.txt");
      expect(one).toMatchObject({ purpose: "user_data", bytes: 3 });
      expect(one?.expires_at).toBe((one?.created_at ?? 0) + 86_400);
      await page.getByLabel("Shown").selectOption("vision");
      await page.getByText("There are no files for this purpose.").waitFor();
    }));

  it("are uploaded beside a refused one, which shows the server's message", () =>
    looking(
      "#/files",
      async (page) => {
        await drop(page, ".uploads", { "large.txt": "x".repeat(1_000_001), "small.txt": "small" });
        await rows(page, "Files").filter({ hasText: "small.txt" }).waitFor();
        const refused = page.locator(".upload-list li").filter({ hasText: "large.txt" });
        await refused.getByText("failed", { exact: true }).waitFor();
        expect(await refused.getByRole("alert").textContent()).toContain("1000000");
        await page.getByRole("button", { name: "Clear the list" }).click();
        await page.locator(".upload-list").waitFor({ state: "detached" });
      },
      ["413"],
    ));

  it("show the progress of their upload, which can be cancelled", () =>
    looking("#/files", async (page) => {
      // The server must get no request before the test ends.
      await page.route("**/v1/files", (route) => (route.request().method() === "POST" ? undefined : route.continue()));
      await drop(page, ".uploads", { "never.txt": "never" });
      await page.getByRole("progressbar", { name: "never.txt" }).waitFor();
      await page.getByRole("button", { name: "Cancel never.txt" }).click();
      await page.locator(".upload-list").getByText("cancelled", { exact: true }).waitFor();
      expect((await client().files.list()).data.some(({ filename }) => filename === "never.txt")).toBe(false);
    }));

  it("are downloaded unchanged, and deleted after a confirmation", async () => {
    const { id } = await client().files.create({ file: new File(["its bytes"], "gone.txt"), purpose: "assistants" });
    await looking("#/files", async (page) => {
      const [saved] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: "Download gone.txt" }).click(),
      ]);
      expect(saved.suggestedFilename()).toBe("gone.txt");
      expect(readFileSync(await saved.path(), "utf8")).toBe("its bytes");
      await page.getByRole("button", { name: "Delete gone.txt" }).click();
      await page.getByRole("button", { name: "Go back" }).click();
      expect((await client().files.retrieve(id)).id).toBe(id);
      await page.getByRole("button", { name: "Delete gone.txt" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
      await rows(page, "Files").filter({ hasText: "gone.txt" }).waitFor({ state: "detached" });
      expect(
        await client()
          .files.retrieve(id)
          .catch(({ status }) => status),
      ).toBe(404);
    });
  });

  it("are visible to their tenant alone", async () => {
    await client().files.create({ file: new File(["x"], "of-acme.txt"), purpose: "assistants" });
    const { page, close } = await rig.openSignedIn(OTHER_KEY, "#/files");
    await page.getByText("There are no files.").waitFor();
    await close();
  });
});

describe("a vector store", () => {
  it("takes files by drop, and is complete when they are indexed", () =>
    looking("#/files/stores", async (page) => {
      const id = await filledStore(page, "texts", "7");
      const store = await client().vectorStores.retrieve(id);
      expect(store).toMatchObject({ name: "texts", expires_after: { days: 7 }, file_counts: { completed: 2 } });
      await rows(page, "Files in it").filter({ hasText: "wings.txt" }).getByText("completed").waitFor();
      await page.getByRole("button", { name: "Take out bread.txt" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Take out" }).click();
      await page.getByText("1 of 1 indexed").first().waitFor();
      await page.getByRole("button", { name: "Delete texts" }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
      await page.getByRole("heading", { name: "Vector stores" }).waitFor();
      await page.getByRole("link", { name: "texts" }).waitFor({ state: "detached" });
      expect(
        await client()
          .vectorStores.retrieve(id)
          .catch(({ status }) => status),
      ).toBe(404);
    }));

  it("shows the reason why a file was not indexed", () =>
    looking("#/files/stores", async (page) => {
      await newStore(page, "pictures");
      await drop(page, ".uploads", { "a.png": "\u0089PNG\r\n\u001a\n\0\0\0" });
      const row = rows(page, "Files in it").filter({ hasText: "a.png" });
      await row.getByText("failed", { exact: true }).waitFor();
      expect(await row.locator(".fault").textContent()).toMatch(/unsupported_file/);
    }));

  it("is searched, and shows the reason for each found chunk", () =>
    looking("#/files/stores", async (page) => {
      await filledStore(page, "searched");
      await page.getByLabel("Queries, one a line").fill("Why does a wing stall?\nsalted dough");
      await page.getByRole("button", { name: "Search", exact: true }).click();
      const results = page.getByRole("list", { name: "Results" }).locator("> li");
      const wings = results.filter({ hasText: "wings.txt" });
      await wings.waitFor();
      expect(await wings.locator("mark").allTextContents()).toEqual(["wing", "stalls"]);
      expect(await wings.locator(".why").textContent()).toMatch(
        /Rank by words\s*1\s*Rank by meaning\s*1\s*Words that match\s*wing, stall/,
      );
      expect(await results.filter({ hasText: "bread.txt" }).locator(".why").textContent()).toMatch(
        /–.*none.*salted, dough/s,
      );
      expect(await results.filter({ hasText: "bread.txt" }).locator("mark").allTextContents()).toEqual([
        "salt",
        "dough",
      ]);
      await page.getByLabel("Found by").selectOption("words");
      await page.getByLabel("Queries, one a line").fill("dough");
      await page.getByRole("button", { name: "Search", exact: true }).click();
      await expect.poll(() => results.count()).toBe(1);
    }));

  it("is searched by attributes that were given with the files", () =>
    looking(
      "#/files/stores",
      async (page) => {
        await newStore(page, "attributed");
        await page.locator("summary", { hasText: "Attributes" }).click();
        await page.getByLabel("Attributes of what is added (JSON)").fill('{ "year": 2024 }');
        await drop(page, ".uploads", { "new.txt": "A text of this year." });
        await rows(page, "Files in it").getByText("year: 2024").waitFor();
        const { id } = await client().files.create({
          file: new File(["A text of an earlier year."], "old.txt"),
          purpose: "assistants",
        });
        await page.getByRole("button", { name: "Add a file" }).click();
        const dialog = page.getByRole("dialog");
        await dialog.getByLabel("Id of the file").fill(id);
        await dialog.getByLabel("Attributes of what is added (JSON)").fill('{ "year": 1999 }');
        await dialog.getByRole("button", { name: "Add", exact: true }).click();
        await page.getByText("2 of 2 indexed").first().waitFor();
        await page.locator("summary", { hasText: "Filters" }).click();
        const filters = page.getByLabel("Filters (JSON), by attributes of files");
        await page.getByLabel("Queries, one a line").fill("text year");
        await filters.fill("{nonsense");
        await page.getByRole("button", { name: "Search", exact: true }).click();
        await page.getByRole("alert").getByText("this is no JSON").waitFor();
        await filters.fill('{ "type": "near", "key": "year", "value": 2000 }');
        await page.getByRole("button", { name: "Search", exact: true }).click();
        await page.getByRole("alert").getByText("filters").waitFor();
        await filters.fill('{ "type": "gte", "key": "year", "value": 2000 }');
        await page.getByRole("button", { name: "Search", exact: true }).click();
        const results = page.getByRole("list", { name: "Results" }).locator("> li");
        await results.getByText("year: 2024").waitFor();
        expect(await results.count()).toBe(1);
      },
      ["400"],
    ));
});

/** A tab at Try, with the tools' part of the form open. The test must leave it clean. */
async function trying(use: (page: Page) => Promise<void>, expected: string[] = []) {
  const tab = await rig.openSignedIn(KEY, "#/chat");
  await tab.page.locator("#input").waitFor();
  await use(tab.page);
  tab.expectClean(expected);
  await tab.close();
}

async function ask(page: Page, text: string): Promise<void> {
  await page.getByLabel("Input", { exact: true }).fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
}

/** A store of one file about owls, and a question whose answer cites it. */
async function askAboutOwls(page: Page, name: string, text = "Owls hoot at night."): Promise<{ file: string }> {
  const { files, vectorStores } = client();
  const { id } = await vectorStores.create({ name });
  const file = await files.create({ file: new File([text], "owls.pdf.md"), purpose: "assistants" });
  await vectorStores.files.createAndPoll(id, { file_id: file.id }, { pollIntervalMs: 20 });
  await page.locator("summary", { hasText: "Tools" }).click();
  await page.getByLabel(name).check();
  await page.getByLabel("Most results").fill("3");
  await ask(page, "Use file_search for `owls`");
  await page.getByText("completed", { exact: true }).waitFor();
  return { file: file.id };
}

describe("an answer from files", () => {
  it("shows the search, and its citation opens the passage, also by keyboard", () =>
    trying(async (page) => {
      await askAboutOwls(page, "owls");
      expect(lastPrompt(rig.gateway)).toMatchObject({ tools: [{ function: { name: "file_search" } }] });
      const call = page.locator(".item-call").filter({ hasText: "File search" });
      expect(await call.locator(".part").textContent()).toContain("owls");
      await call.locator("summary", { hasText: "owls.pdf.md" }).click();
      await call.locator(".passage-text").getByText("Owls hoot at night.").waitFor();
      const number = page.getByRole("button", { name: "Source 1: owls.pdf.md" });
      await number.focus();
      await page.keyboard.press("Enter");
      const passages = page.getByRole("group", { name: "Passages of owls.pdf.md" });
      await passages.getByText("Owls hoot at night.").waitFor();
      expect(await passages.evaluate((element) => element === document.activeElement)).toBe(true);
      await page.getByRole("list", { name: "Sources" }).getByRole("button", { name: "owls.pdf.md" }).click();
      await passages.waitFor({ state: "hidden" });
      await expectAccessible(page);
    }));

  it("finds a passage again that a response, opened later, does not contain", async () => {
    const { files, vectorStores, responses } = client();
    const { id } = await vectorStores.create({ name: "pages" });
    const pdf = textPdf(["Nothing of interest.", "Owls hoot at night."]);
    const file = await files.create({ file: new File([Buffer.from(pdf)], "owls.pdf"), purpose: "assistants" });
    await vectorStores.files.createAndPoll(id, { file_id: file.id }, { pollIntervalMs: 20 });
    const answer = await responses.create({
      model: "simulator",
      input: "Use file_search for `owls`",
      tools: [{ type: "file_search", vector_store_ids: [id] }],
    });
    const { page, expectClean, close } = await rig.openSignedIn(KEY, `#/responses/${answer.id}`);
    await page.getByRole("list", { name: "Sources" }).getByRole("button", { name: "owls.pdf" }).click();
    const passages = page.getByRole("group", { name: "Passages of owls.pdf" });
    await passages.getByText("Owls hoot at night.").waitFor();
    await passages.getByText("pages 1–2").waitFor();
    await vectorStores.delete(id);
    await page.reload();
    await page.getByRole("list", { name: "Sources" }).getByRole("button", { name: "owls.pdf" }).click();
    await passages.getByRole("alert").waitFor();
    expectClean(["404"]);
    await close();
  });
});

describe("a document with a message", () => {
  const PDF = Buffer.from(textPdf(["Owls hoot at night.", "", "They sleep by day."]));
  /** The same document with a comment that makes it large enough for an upload. */
  const LARGE = Buffer.concat([
    PDF,
    Buffer.from(`\n%${" ".repeat(300_000)}\n`),
    PDF.subarray(PDF.lastIndexOf("startxref")),
  ]);

  it.each([
    ["small", PDF, 0],
    ["large", LARGE, 1],
  ])("is read by the model: a %s PDF", (size, buffer, uploaded) =>
    trying(async (page) => {
      const name = `${size}.pdf`;
      await page.getByLabel("Attach").setInputFiles([{ name, mimeType: "application/pdf", buffer }]);
      const remove = page.getByRole("button", { name: `Remove ${name}` });
      await page
        .locator(".attachments")
        .getByText(/kB|B\)/)
        .waitFor();
      await page.locator(".attachments progress").waitFor({ state: "detached" });
      await remove.waitFor();
      await ask(page, "What do owls do?");
      await page.locator(".item-answer").getByText("They sleep by day.").waitFor();
      expect(JSON.stringify(lastPrompt(rig.gateway))).toContain("[page 3]\\nThey sleep by day.");
      await page.locator(".item-input").getByText(name).waitFor();
      const kept = (await client().files.list({ purpose: "user_data" })).data.filter((each) => each.filename === name);
      expect(kept.length).toBe(uploaded);
    }),
  );

  it("is deleted if it was uploaded and removed from the message, and is reported if it is refused", () =>
    trying(
      async (page) => {
        const attach = (name: string, bytes: number) =>
          page.getByLabel("Attach").setInputFiles([{ name, mimeType: "text/plain", buffer: Buffer.alloc(bytes, "x") }]);
        await attach("removed.txt", 300_000);
        await page.locator(".attachments progress").waitFor({ state: "detached" });
        const has = async () => (await client().files.list()).data.some(({ filename }) => filename === "removed.txt");
        expect(await has()).toBe(true);
        await page.getByRole("button", { name: "Remove removed.txt" }).click();
        await expect.poll(has).toBe(false);
        await attach("refused.txt", 1_000_001);
        await page
          .getByRole("alert")
          .getByText(/refused\.txt: .*1000000/)
          .waitFor();
        expect(await page.locator(".attachments").count()).toBe(0);
      },
      ["413"],
    ));
});

it.each(LOOKS)("the views are accessible and usable: %s", async (look, options) => {
  const { page, close } = await rig.openSignedIn(KEY, "#/files/stores", options);
  await page.getByRole("heading", { name: "Vector stores" }).waitFor();
  await expectUsable(page);
  await filledStore(page, `for a ${look}`);
  await page.getByLabel("Queries, one a line").fill("wing");
  await page.getByRole("button", { name: "Search", exact: true }).click();
  await page.locator("mark").first().waitFor();
  await expectAccessible(page);
  await expectUsable(page);
  await page.getByRole("link", { name: "All vector stores" }).click();
  await rows(page, "Vector stores").first().waitFor();
  await expectAccessible(page);
  await page.getByRole("navigation", { name: "Sections" }).getByRole("link", { name: "Files" }).click();
  await rows(page, "Files").first().waitFor();
  await expectAccessible(page);
  await expectUsable(page);
  await close();
});
