import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Response, ResponseOutputText, Tool } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DATE, GPT_OSS, lastTurns, saying } from "./harmony-support.ts";
import { type Gateway, lastPrompt, startGateway } from "./support.ts";
import { type Answer, ask, chatMessages, generations, itemsOfType, MODELS, type Way } from "./tool-support.ts";

/** The model's citations of pages that it has seen become links with annotations. */

const search: Tool = { type: "web_search" };

let web: Server;
let gateway: Gateway;
/** The cited page, and the link of its citation. */
let page: string;
let link: string;
beforeAll(async () => {
  web = createServer((request, response) => {
    if (!request.url?.startsWith("/search")) {
      response.writeHead(200, { "content-type": "text/html" });
      response.end("<title>Tea 🍵 &amp; more</title><p>Steep it for three minutes.</p>");
      return;
    }
    const results = ["one", "two"].map((name) => ({ url: `https://${name}.example.org/`, title: `The ${name}` }));
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ results }));
  });
  await new Promise<void>((resolve) => web.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
  page = `${origin}/tea`;
  link = ` ([${new URL(page).host}](${page})) `;
  gateway = await startGateway({ HARMONY_START_DATE: DATE, MCP_SERVERS: origin, SEARXNG_URL: origin });
});
afterAll(async () => {
  await gateway.close();
  web.closeAllConnections();
  web.close();
});

function lastText(response: Pick<Response, "output">): ResponseOutputText {
  const part = itemsOfType(response, "message").at(-1)?.content[0];
  if (part?.type !== "output_text") throw new Error(`Expected a text, got ${JSON.stringify(response.output)}`);
  return part;
}

/** The parts of a text at its annotations' positions, counted in code points. */
function cited({ text, annotations }: ResponseOutputText): string[] {
  const characters = Array.from(text);
  return annotations.map((annotation) =>
    annotation.type === "url_citation"
      ? characters.slice(annotation.start_index, annotation.end_index).join("")
      : annotation.type,
  );
}

/** Creates a turn in which the model has opened the page, as cursor 0. */
async function opened(model: string): Promise<string> {
  const name = model === GPT_OSS ? "browser.open" : "browser_open";
  const input = `Use ${name}: \`${page}\``;
  return (await ask(gateway, "json", { model, tools: [search], input })).response.id;
}

/** Creates a turn in which the model repeats its input, also marks. The pages are those of the turn before. */
function echo(model: string, id: string, input: string, way: Way = "json"): Promise<Answer> {
  return ask(gateway, way, { model, tools: [search], previous_response_id: id, input });
}

const SAID =
  "😀é👩‍👩‍👧 one【0†L1-L2】, two 【0†L3】【0†L4†again】【7†L1】 three 【oops 【0†】 【99999999999999†L1】 end 【0†L9";

function shown(): string {
  const known = SAID.replace("【0†L1-L2】", link).replace("【0†L3】【0†L4†again】", link + link);
  return `You said: ${known}`;
}

describe.each(MODELS)("a citation by %s", (model) => {
  let id: string;
  beforeAll(async () => {
    id = await opened(model);
  });

  it.each<[Way, string]>([
    ["json", ""],
    ["background", ""],
    ["stream", ""],
    ["stream", "?per_delta=odd"],
    ["stream", "?per_delta=4&chunk=3"],
    ["stream", "?bytes=3"],
    ["stream", "?bytes=1"],
    ["json", "?fault=json"],
  ])("becomes a link with an annotation, as %s%s", async (way, settings) => {
    const { response, events } = await echo(model + settings, id, SAID, way);
    expect(response.status).toBe("completed");
    const part = lastText(response);
    expect(part.text).toBe(shown());
    expect(cited(part)).toEqual([link, link, link]);
    expect(part.annotations).toMatchObject(
      Array.from({ length: 3 }, () => ({ type: "url_citation", title: "Tea 🍵 & more", url: page })),
    );
    // Positions count code points, not UTF-16 units: each emoji before it counts once.
    expect(part.annotations[0]).toMatchObject({ start_index: Array.from("You said: 😀é👩‍👩‍👧 one").length });
    const stored = await gateway.openai.responses.retrieve(response.id);
    expect(lastText(stored)).toEqual(part);
    if (way !== "stream") return;

    const added = events.filter((event) => event.type === "response.output_text.annotation.added");
    expect(added.map(({ annotation }) => annotation)).toEqual(part.annotations);
    expect(added.map(({ annotation_index }) => annotation_index)).toEqual([0, 1, 2]);
    // No part of a possible mark is shown before it is known to be one, and an annotation comes after its link.
    let text = "";
    for (const event of events) {
      if (event.type === "response.output_text.delta") {
        text += event.delta;
        expect(part.text.startsWith(text)).toBe(true);
      }
      if (event.type !== "response.output_text.annotation.added") continue;
      const { end_index } = event.annotation as { end_index: number };
      expect(Array.from(text).length).toBeGreaterThanOrEqual(end_index);
    }
    expect(text).toBe(part.text);
  });

  it("is complete if vLLM breaks off in the middle of a mark", async () => {
    const said = "one 【0†L1-L2】";
    const expected = `You said: one ${link}`;
    const before = generations(gateway).length;
    // Faults are counted by their settings, for all models together. After the mark a chat model would continue the
    // link.
    const [settings, first, last] = model === GPT_OSS ? ["reasoning=0&chunk=1", 7, 15] : ["reasoning=0", 4, 9];
    for (let deltas = Number(first); deltas <= Number(last); deltas++) {
      const cut = `${model}?${settings}&fault=cut:${deltas}&fault_times=1`;
      const { response } = await echo(cut, id, said, "stream");
      expect({ deltas, ...lastText(response) }).toMatchObject({ deltas, text: expected });
      expect(cited(lastText(response))).toEqual([link]);
    }
    expect(generations(gateway).length - before).toBe(2 * (Number(last) - Number(first) + 1));
  });

  it("is text if no page has that cursor, and without a browser", async () => {
    const unknown = await echo(model, id, "Look 【5†L1-L2】!");
    expect(lastText(unknown.response)).toMatchObject({ text: "You said: Look 【5†L1-L2】!", annotations: [] });
    const input = "Look 【0†L1-L2】!";
    const { response } = await ask(gateway, "stream", { model, previous_response_id: id, input });
    expect(lastText(response)).toMatchObject({ text: "You said: Look 【0†L1-L2】!", annotations: [] });
    const fresh = await ask(gateway, "stream", { model, tools: [search], input });
    expect(lastText(fresh.response)).toMatchObject({ text: "You said: Look 【0†L1-L2】!", annotations: [] });
  });

  it("of a search's results links the result in that line", async () => {
    const name = model === GPT_OSS ? "browser.search" : "browser_search";
    const { response } = await ask(gateway, "json", { model, tools: [search], input: `Use ${name}: \`numbers\`` });
    const { response: answer } = await echo(model, response.id, "【0†L5】and【0†L4】and【0†L1】", "stream");
    const part = lastText(answer);
    expect(part.text).toBe(
      "You said:  ([two.example.org](https://two.example.org/)) and ([one.example.org](https://one.example.org/)) and【0†L1】",
    );
    expect(part.annotations).toMatchObject([{ title: "The two" }, { title: "The one" }]);
    expect(cited(part)[0]).toBe(" ([two.example.org](https://two.example.org/)) ");
  });

  it("is in the next prompt in the model's form", async () => {
    const { response } = await echo(model, id, "See 【0†L1】.");
    await echo(model, response.id, "Thanks.");
    if (model === GPT_OSS) {
      // It is there unchanged: vLLM has it in its cache.
      expect(await lastTurns(gateway)).toContain("assistant<|channel|>final<|message|>You said: See 【0†L1】.<|end|>");
    } else {
      expect(chatMessages(lastPrompt(gateway)).at(-2)).toEqual({
        role: "assistant",
        content: `You said: See ${link}.`,
      });
    }
  });
});

describe("gpt-oss, in the turn in which it opens a page,", () => {
  const script = () =>
    saying(
      `<|channel|>analysis<|message|>I look 【0†L1】.<|end|><|start|>assistant<|channel|>analysis to=browser.open code<|message|>${JSON.stringify({ id: page })}<|call|>`,
      "<|channel|>analysis<|message|>It says so 【0†L1】.<|end|><|start|>assistant<|channel|>commentary<|message|>Found 【0†L2】.<|end|><|start|>assistant<|channel|>final<|message|>🍵 Three minutes【0†L3-L4】.<|return|>",
    );

  it.each<[Way, string]>([
    ["json", ""],
    ["stream", "&per_delta=odd"],
    ["background", "&bytes=3"],
  ])("cites it in its answer, as %s%s", async (way, settings) => {
    const { response } = await ask(gateway, way, {
      model: script() + settings,
      tools: [search],
      input: "How long?",
    });
    expect(response.status).toBe("completed");
    const messages = itemsOfType(response, "message").flatMap(({ content }) => content as ResponseOutputText[]);
    expect(messages.map(({ text }) => text)).toEqual([`Found ${link}.`, `🍵 Three minutes${link}.`]);
    expect(messages.map(cited)).toEqual([[link], [link]]);
    expect(messages[1]?.annotations).toEqual([
      {
        type: "url_citation",
        start_index: 15,
        end_index: 15 + link.length,
        title: "Tea 🍵 & more",
        url: page,
      },
    ]);
    const thoughts = itemsOfType(response, "reasoning").flatMap(({ content }) => content ?? []);
    expect(thoughts.map(({ text }) => text)).toEqual(["I look 【0†L1】.", "It says so 【0†L1】."]);
  });

  it("keeps an unfinished citation when it is cut off", async () => {
    const model = saying("<|channel|>final<|message|>Three minutes 【0†L3-");
    const { response } = await ask(gateway, "stream", {
      model,
      tools: [search],
      previous_response_id: await opened(GPT_OSS),
      input: "How long?",
    });
    expect(response.status).toBe("incomplete");
    expect(lastText(response)).toMatchObject({ text: "Three minutes 【0†L3-", annotations: [] });
  });
});
