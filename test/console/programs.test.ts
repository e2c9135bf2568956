import type { Page } from "playwright-core";
import { afterAll, beforeAll, it } from "vitest";
import { CHAT, writing } from "../e2e/program-support.ts";
import { eventually } from "../e2e/support.ts";
import { mcp, startTools, type ToolServer } from "../e2e/tool-support.ts";
import { type ConsoleRig, expectUsable, KEY, KEYED, LOOKS, startConsole } from "./support.ts";

/** Programs and agents in a chat: their calls stand below them, and say who has made them. */

let rig: ConsoleRig;
let server: ToolServer;
beforeAll(async () => {
  server = await startTools({
    add: {
      properties: { a: { type: "integer" }, b: { type: "integer" } },
      run: ({ a, b }) => String(Number(a) + Number(b)),
    },
  });
  rig = await startConsole({ ...KEYED, MCP_SERVERS: server.url }, "serve");
});
afterAll(async () => {
  await rig.close();
  await server.close();
});

/** The headings of the items on the page, in order. One that stands below another one begins with `>`. */
function headings(page: Page): Promise<string[]> {
  return page.locator(".transcript").evaluate((transcript) =>
    [...transcript.querySelectorAll<HTMLElement>(".item:not(.item-input, .item-reasoning, .item-tools)")]
      .filter((item) => item.checkVisibility() && !item.closest(".unseen-turn"))
      .map((item) => {
        const words = [...(item.querySelector(".item-heading, summary")?.querySelectorAll("span, code") ?? [])];
        const heading = words.map((word) => word.textContent?.trim()).join(" ");
        return item.classList.contains("item-within") ? `> ${heading}` : heading;
      }),
  );
}

async function ask(page: Page, fields: object, input: string): Promise<void> {
  const settings = page.getByRole("button", { name: "Settings", exact: true });
  const isHidden = !(await page.locator(".settings").isVisible());
  if (isHidden) await settings.click();
  const field = page.getByLabel("Further fields (JSON)");
  if (!(await field.isVisible())) await page.locator(".settings summary", { hasText: "More" }).click();
  await field.fill(JSON.stringify({ model: CHAT, ...fields }));
  if (isHidden) await settings.click();
  await page.getByLabel("Input", { exact: true }).fill(input);
  await page.getByRole("button", { name: "Send", exact: true }).click();
}

/** For a look at the page. */
async function picture(page: Page, name: string): Promise<void> {
  const { CONSOLE_PICTURES: folder } = process.env;
  if (folder) await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
}

it.each(LOOKS.slice(0, 2))("a program's calls are below it, and its user answers one (%s)", async (look, options) => {
  const { page, expectClean, close } = await rig.openSignedIn(KEY, "#/chat", options);
  await page.locator("#input").waitFor();
  const tools = [
    { type: "programmatic_tool_calling" },
    mcp(server, { allowed_callers: ["programmatic"] }),
    { type: "function", name: "look_up", allowed_callers: ["programmatic"], parameters: {}, strict: false },
  ];
  const code = `const sums = await Promise.all([1, 2].map((b) => tools.docs__add({ a: 40, b })));
const price = await tools.look_up({ sku: "A1" });
return { sums, price };`;
  await ask(page, { tools }, writing(CHAT, code));
  await page.getByLabel("Output of look_up").fill("12 euros");
  await page.getByRole("button", { name: "Send output" }).click();
  const calls = ["MCP call docs.add program", "MCP call docs.add program", "Function call look_up program"];
  const all = ["Program", ...calls.map((call) => `> ${call}`), "Output of a program", "Assistant"];
  await eventually(async () => (await headings(page)).join() === all.join());
  await picture(page, `program-${look}`);
  await expectUsable(page);
  expectClean();
  await close();
});

it("an agent's items say whose they are", async () => {
  const { page, expectClean, close } = await rig.openSignedIn(KEY, "#/chat");
  await page.locator("#input").waitFor();
  const script = `SCRIPT[[‹think›\nhm\n‹/think›\n\n‹tool_call›
{"name": "spawn_agent", "arguments": {"task_name": "a", "message": "Look."}}
‹/tool_call›\n‹tool_call›\n{"name": "wait_agent", "arguments": {}}\n‹/tool_call›‹|im_end|›]]`;
  await ask(page, { multi_agent: { enabled: true } }, script);
  const calls = ["Call", "Output"].flatMap((what) => [`${what} of agents spawn_agent`, `${what} of agents wait_agent`]);
  const all = [...calls, "> Assistant /root/a", "Message of an agent /root/a → /root", "Assistant"];
  await eventually(async () => (await headings(page)).join() === all.join());
  await picture(page, "agents");
  expectClean();
  await close();
});
