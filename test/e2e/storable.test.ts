import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually, type Gateway, startGateway } from "./support.ts";

let gateway: Gateway;
beforeAll(async () => {
  // Each tree has a home of its own, so that its size is measured alone.
  gateway = await startGateway({ TREES_PER_HOME: "1" });
});
afterAll(() => gateway.close());

/** A body within the limit that exceeds it in its stored form, in which every item has an id and a status. */
const input = Array.from({ length: 130_000 }, () => ({ role: "user", content: "x" }));

describe("a request that could not be stored with its response", () => {
  it.each([{}, { stream: true }, { background: true }])("is refused before anything is generated: %j", async (more) => {
    const answer = await gateway.post({ input, ...more });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { param: "input", type: "invalid_request_error" } });
    expect(gateway.vllm.simulator.requests.filter(({ path }) => path === "/v1/chat/completions")).toEqual([]);
  });
});

/** Random letters, which compress worst. */
function letters(alphabet: string, length: number): string {
  const all = [...alphabet];
  let state = 1;
  const next = () => (state = (state * 48_271) % 2_147_483_647);
  return Array.from({ length }, () => all[next() % all.length]).join("");
}

const texts = {
  English: letters("eeeetttaaoooinnshrdlu ", 200_000),
  base64: letters("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", 200_000),
  Latin: letters("eaionéèêàüößñç ", 150_000),
  Chinese: letters("的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去", 80_000),
  emoji: letters("😀😃😄😁😆😅🤣😂🙂🙃😉😊😇🥰😍🤩", 80_000),
};

/**
 * A database has pages of 4 kB: a home has up to eight for its tables, and the last one of each long row is not full.
 */
const PAGES = 12 * 4096;

describe("a stored response", () => {
  const post = async (path: string, body: object, headers: Record<string, string> = {}) => {
    const init = { method: "POST", headers: { "content-type": "application/json", ...headers } };
    const answer = await fetch(`${gateway.url}${path}`, { ...init, body: JSON.stringify(body) });
    expect(answer.status).toBe(200);
    return (await answer.json()) as { id: string; status?: string };
  };
  const ended = ({ id }: { id: string }) =>
    eventually(async () => {
      const { status } = (await (await fetch(`${gateway.url}/v1/responses/${id}`)).json()) as { status: string };
      return status === "completed";
    });

  it("takes at most 1.2 times its text, for every text and every way", async () => {
    const stored: { what: string; id: string; said: number; most: number }[] = [];
    for (const [language, text] of Object.entries(texts)) {
      const said = Buffer.byteLength(text);
      const note = (way: string, id: string, times = 1, most = 1.2) =>
        stored.push({ what: `${language}, ${way}`, id, said: times * said, most });
      const items = [{ role: "user", content: text }];
      const model = "simulator?words=20";
      const conversation = await post("/v1/conversations", { items });
      note("conversation", conversation.id);
      const added = await post("/v1/conversations", {});
      for (let time = 0; time < 3; time += 1) await post(`/v1/conversations/${added.id}/items`, { items });
      note("items", added.id, 3);
      note("response", (await post("/v1/responses", { model, input: text })).id);
      note("instructions", (await post("/v1/responses", { model, input: "Hello!", instructions: text })).id);
      const run = await post("/v1/responses", { model, input: text, background: true });
      note("background", run.id);
      const instructed = await post("/v1/responses", { model, input: "!", instructions: text, background: true });
      // Events repeat the instructions during the run. The database does not shrink afterwards, but later turns reuse
      // its pages.
      note("background, instructions", instructed.id, 1, 3);
      const once = await post("/v1/responses", { model, input: text }, { "idempotency-key": language });
      note("idempotency key", once.id);
      for (const each of [run, instructed]) await ended(each);
    }
    const tooMuch = () =>
      stored.filter(({ id, said, most }) => gateway.storage.bytesAt(id) > most * said + PAGES).map(({ what }) => what);
    await eventually(() => stored.every(({ id }) => !gateway.storage.isAwake(id)));
    expect(tooMuch()).toEqual([]);
    for (const { id, what } of stored) expect([what, gateway.storage.bytesAt(id) > 0]).toEqual([what, true]);
  });

  it("takes at most one page more if it is small", async () => {
    let said = 0;
    let previous: string | undefined;
    for (let turn = 0; turn < 30; turn += 1) {
      const body = { input: letters("etaoin shrdlu", 50 * turn), ...(previous && { previous_response_id: previous }) };
      const answer = await post("/v1/responses", body);
      said += JSON.stringify(body).length + JSON.stringify(answer).length;
      previous = answer.id;
    }
    const id = previous ?? "";
    await eventually(() => !gateway.storage.isAwake(id));
    expect(gateway.storage.bytesAt(id)).toBeLessThan(1.2 * said + 30 * 4096 + PAGES);
  });

  it("leaves only the memory of a few requests in use, also after many", async () => {
    const body = JSON.stringify({ items: [{ role: "user", content: "a".repeat(10_000_000) }] });
    const headers = { "content-type": "application/json" };
    const send = async (times: number) => {
      for (let time = 0; time < times; time += 1) {
        const answer = await fetch(`${gateway.url}/v1/conversations`, { method: "POST", headers, body });
        expect(answer.status).toBe(200);
        await answer.arrayBuffer();
      }
    };
    await send(15);
    const before = gateway.memory();
    await send(15);
    // Each of them has 10 MB of text.
    expect(gateway.memory() - before).toBeLessThan(150);
  });
});
