import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { newTurnAddress, type TurnAddress } from "@responses-edge/responses-api/ids";
import { isRecord } from "@responses-edge/turn/records";
import type { Response as ResponseBody, ResponseStreamEvent } from "openai/resources/responses/responses";
import { describe, expect, it, vi } from "vitest";
import type { Home } from "../../src/store/home/home.ts";
import * as rig from "./recovery-rig.ts";
import { crash, eventually, expectWholeLog, f } from "./recovery-rig.ts";

/** A generation of a chat model. A token is a word. */
class Generation extends rig.Generation {
  readonly prompt: { messages: { role: string; content: string }[]; continue_final_message?: boolean };

  constructor(body: string) {
    super();
    this.prompt = JSON.parse(body) as Generation["prompt"];
  }

  protected override get promptTokens(): number {
    return rig.wordsIn(this.prompt.messages);
  }

  #delta(delta: object, tokens: number, finish_reason: string | null = null): this {
    this.send([{ choices: [{ index: 0, delta, finish_reason }] }], tokens);
    return this;
  }

  say(...words: string[]): this {
    for (const content of words) this.#delta({ content }, 1);
    return this;
  }

  think(reasoning: string): this {
    return this.#delta({ reasoning }, 1);
  }

  call(name: string | undefined, part: string): this {
    return this.#delta({ tool_calls: [{ index: 0, id: name && "call_1", function: { name, arguments: part } }] }, 0);
  }

  /** Ends with a finish chunk and the usage; with `cut`, then the connection breaks. */
  finish(cut = false): void {
    this.#delta({}, 0, "stop").end(cut ? "cut" : "end");
  }
}

const { generations } = rig.useModelServer({ newGeneration: (body) => new Generation(body) });

/** The generation of this number, as soon as it is requested. */
function generation(number: number): Promise<Generation> {
  return eventually(() => generations[number - 1], `Generation ${number} was not asked for.`);
}

class Run extends rig.Run {
  constructor(request: Partial<CreateRequest> = {}, input = "Count.", address?: TurnAddress, parent?: string) {
    super({ request, input, engine: "chat", address, parent });
  }

  static begin(...options: ConstructorParameters<typeof Run>): Promise<Run> {
    return new Run(...options).begin();
  }

  async follow(after = -1): Promise<Reader> {
    const answer = await this.stream(after, 1);
    expect(answer.status).toBe(200);
    return new Reader(answer);
  }

  /** The whole log, as a new reader gets it. */
  async replay(): Promise<ResponseStreamEvent[]> {
    const reader = await this.follow();
    await reader.end;
    expect(reader.done).toBe(true);
    return reader.events;
  }

  /** Waits until the text of the log ends like this. A reader makes that soon. */
  async logged(ending: string): Promise<void> {
    const reader = await this.follow();
    await eventually(() => reader.text.endsWith(ending), `The log does not end with '${ending}'.`);
    reader.leave();
  }
}

class Reader {
  /** Resolves when the stream has ended in any way. */
  readonly end: Promise<void>;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #bytes = "";

  constructor(answer: Response) {
    if (!answer.body) throw new Error("No body.");
    this.#reader = answer.body.getReader();
    this.end = this.#read();
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder();
    try {
      for (;;) {
        const { done, value } = await this.#reader.read();
        if (done) return;
        this.#bytes += decoder.decode(value, { stream: true });
      }
    } catch {
      // The object died, or the run gave up.
    }
  }

  leave(): void {
    this.#reader.cancel().catch(() => {});
  }

  get done(): boolean {
    return this.#bytes.endsWith("data: [DONE]\n\n");
  }

  get events(): ResponseStreamEvent[] {
    return [...this.#bytes.matchAll(/^data: (\{.*\})\n\n/gm)].map(
      ([, json]) => JSON.parse(json ?? "") as ResponseStreamEvent,
    );
  }

  get text(): string {
    return this.events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join("");
  }
}

const TERMINAL = ["response.completed", "response.failed", "response.incomplete"];

/** Checks the rules of every log. */
function expectWhole(events: ResponseStreamEvent[], response: ResponseBody): void {
  expectWholeLog(events, response);
  expect(events.filter(({ type }) => TERMINAL.includes(type))).toHaveLength(1);
  for (const item of response.output) expect(item).not.toHaveProperty("status", "in_progress");
}

describe("a run whose process dies in the middle of its text", () => {
  /** The possible first events after a crash. */
  const accesses: [string, (run: Run) => Promise<unknown>][] = [
    ["the alarm", (run) => runDurableObjectAlarm(run.home).then((rang) => expect(rang).toBe(true))],
    ["somebody who asks after it", (run) => run.retrieve()],
    ["somebody who reads its stream", (run) => run.follow()],
    ["somebody who asks for its input", (run) => run.home.inputItems(run.address.turn, { limit: 1, order: "asc" })],
    [
      "many at the same time",
      (run) =>
        Promise.all([run.retrieve(), run.follow(), run.follow(3), run.retrieve(), runDurableObjectAlarm(run.home)]),
    ],
  ];

  it.each(accesses)("is resumed once by %s, and continues at the end of its log", async (_, access) => {
    const run = await Run.begin();
    (await generation(1)).say("one", " two", " three");
    await run.logged(" three");
    const before = await run.sql<{ body: string }>("SELECT body FROM events ORDER BY seq_from");
    await crash();
    await access(run);
    const second = await generation(2);
    expect(second.prompt.continue_final_message).toBe(true);
    expect(second.prompt.messages).toEqual([
      { role: "user", content: "Count." },
      { role: "assistant", content: "one two three" },
    ]);
    second.say(" four", " five").finish();
    const response = await run.ended();
    expect(response).toMatchObject({
      status: "completed",
      output: [{ type: "message", content: [{ text: "one two three four five" }] }],
      usage: { input_tokens: 1, output_tokens: 5, total_tokens: 6 },
    });
    expectWhole(await run.replay(), response);
    // Events that a reader may have stay unchanged.
    const logged = before.flatMap(({ body }) => body.split("\n")).filter((line) => !isRecord(line));
    const frames = logged.map((json) => `data: ${json}\n\n`);
    const stream = await (await run.stream(-1, 1)).text();
    expect(frames.length).toBeGreaterThan(5);
    expect(stream.replaceAll(/^event: .*\n/gm, "").startsWith(frames.join(""))).toBe(true);
    expect(generations).toHaveLength(2);
    expect(await run.sql("SELECT turn FROM runs")).toEqual([]);
  });

  it("repeats output that was not in the log yet, which no reader has seen", async () => {
    const run = await Run.begin();
    const first = await generation(1);
    first.say("one", " two");
    await run.logged(" two");
    // Without a reader, these events wait in memory.
    first.say(" three", " four");
    await eventually(() => first.read, "Not read.");
    expect((await run.sql<{ last: number }>("SELECT MAX(seq_to) AS last FROM events"))[0]?.last).toBe(6);
    await crash();
    await run.retrieve();
    const second = await generation(2);
    expect(second.prompt.messages.at(-1)?.content).toBe("one two");
    second.say(" three", " four").finish();
    const response = await run.ended();
    expect(response.output).toMatchObject([{ content: [{ text: "one two three four" }] }]);
    expectWhole(await run.replay(), response);
  });

  it("may die again and again, and is complete in the end", async () => {
    const run = await Run.begin();
    const words = ["one", " two", " three", " four", " five", " six"];
    for (const [index, word] of words.entries()) {
      (await generation(index + 1)).say(word);
      await run.logged(word);
      await crash();
      await run.retrieve();
    }
    (await generation(words.length + 1)).finish();
    const response = await run.ended();
    expect(response).toMatchObject({ status: "completed", usage: { output_tokens: 6 } });
    expect(response.output).toMatchObject([{ content: [{ text: words.join("") }] }]);
    expectWhole(await run.replay(), response);
  });

  it("continues after its reasoning, which is in the prompt again", async () => {
    const run = await Run.begin();
    (await generation(1)).think("Let us count.").say("one", " two");
    await run.logged(" two");
    await crash();
    await run.retrieve();
    const second = await generation(2);
    expect(second.prompt.messages.at(-1)).toMatchObject({ content: "one two", reasoning: "Let us count." });
    second.say(" three").finish();
    const response = await run.ended();
    expect(response.output).toMatchObject([
      { type: "reasoning", content: [{ text: "Let us count." }] },
      { type: "message", content: [{ text: "one two three" }] },
    ]);
    expect(response.usage?.output_tokens_details.reasoning_tokens).toBe(1);
    expectWhole(await run.replay(), response);
  });

  it("can be cancelled by the first request, with the text so far", async () => {
    const run = await Run.begin();
    (await generation(1)).say("one", " two");
    await run.logged(" two");
    await crash();
    const cancelled = await run.home.cancel(run.address.turn);
    if (!cancelled?.ok) throw new Error("The cancellation was refused.");
    expect(JSON.parse(cancelled.value.head)).toMatchObject({ status: "cancelled" });
    expect(JSON.parse(cancelled.value.output)).toMatchObject([
      { status: "incomplete", content: [{ text: "one two" }] },
    ]);
    expectWhole(await run.replay(), await run.retrieve());
    await expect.poll(() => generations.slice(1).every(({ aborted }) => aborted)).toBe(true);
  });

  it("can be deleted by the first request", async () => {
    const run = await Run.begin();
    (await generation(1)).say("one", " two");
    await run.logged(" two");
    await crash();
    expect(await run.home.delete(run.address.turn)).toBe(true);
    expect(await run.home.retrieve(run.address.turn)).toBeNull();
    expect(await runDurableObjectAlarm(run.home)).toBe(false);
  });

  it("can be deleted by several requests at once, one of which succeeds", async () => {
    const run = await Run.begin();
    (await generation(1)).say("one");
    const deleted = await runInDurableObject(run.home, (home: Home) =>
      Promise.all(Array.from({ length: 3 }, () => home.delete(run.address.turn))),
    );
    expect(deleted.filter(Boolean)).toHaveLength(1);
    expect(await run.sql("SELECT name FROM sqlite_schema WHERE name NOT LIKE '\\_cf\\_%' ESCAPE '\\'")).toEqual([]);
    expect(await runDurableObjectAlarm(run.home)).toBe(false);
  });

  it("obeys max_output_tokens", async () => {
    const run = await Run.begin({ max_output_tokens: 5 });
    (await generation(1)).say("one", " two", " three");
    await run.logged(" three");
    await crash();
    await run.retrieve();
    expect((await generation(2)).prompt).toMatchObject({ max_completion_tokens: 2 });
  });
});

describe("a run whose process dies before anything of it is logged", () => {
  it.each([false, true])("begins again, with its first events only once (with words in memory: %s)", async (spoken) => {
    const run = await Run.begin();
    const first = await generation(1);
    if (spoken) {
      first.say("lost");
      await eventually(() => first.read, "Not read.");
    }
    await crash();
    await run.retrieve();
    const second = await generation(2);
    if (!spoken) expect(second.prompt).toEqual(first.prompt);
    else if (second.prompt.continue_final_message) return;
    second.say("one").finish();
    const response = await run.ended();
    expect(response.output).toMatchObject([{ content: [{ text: "one" }] }]);
    const events = await run.replay();
    expectWhole(events, response);
    expect(events.filter(({ type }) => type === "response.in_progress")).toHaveLength(1);
  });
});

describe("a run whose process dies before its model has given a valid answer", () => {
  it("in a call that no reader has seen begins it again", async () => {
    const run = await Run.begin({ tools: [f] });
    (await generation(1)).call("f", '{"ci').call(undefined, 'ty":');
    await crash();
    expect((await run.retrieve()).status).toBe("in_progress");
    (await generation(2)).call("f", '{"city":"Rome"}').finish();
    const response = await run.ended();
    expect(response.output).toMatchObject([{ name: "f", arguments: '{"city":"Rome"}', status: "completed" }]);
    expectWhole(await run.replay(), response);
  });

  it("during the repetition after a cut call continues without that call", async () => {
    const run = await Run.begin({ tools: [{ ...f, strict: true }] });
    (await generation(1)).call("f", '{"city":').finish();
    const reader = await run.follow();
    await expect.poll(() => reader.events.at(-1)?.type).toBe("response.output_item.done");
    await generation(2);
    await crash();
    expect((await run.retrieve()).status).toBe("in_progress");
    const third = await generation(3);
    // The call is not in the model server, and not in the prompt.
    expect(third.prompt.messages).toHaveLength(1);
    third.call("f", '{"city":"Rome"}').finish();
    const response = await run.ended();
    expect(response.status).toBe("completed");
    expect(response.output).toMatchObject([
      { name: "f", arguments: '{"city":', status: "incomplete" },
      { name: "f", arguments: '{"city":"Rome"}', status: "completed" },
    ]);
    expectWhole(await run.replay(), response);
  });

  it("during the repetition after a call of an unknown tool begins again", async () => {
    const run = await Run.begin({ tools: [f] });
    (await generation(1)).call("nope", "{}").finish();
    expect((await generation(2)).prompt.messages.map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
    await crash();
    expect((await run.retrieve()).status).toBe("in_progress");
    (await generation(3)).say("Done.").finish();
    const response = await run.ended();
    expect(response.output).toMatchObject([{ type: "message", content: [{ text: "Done." }] }]);
    expectWhole(await run.replay(), response);
  });

  it("in a final text without its format shows nothing of it", async () => {
    const schema = { type: "object", properties: { t: { type: "string" } }, required: ["t"] };
    const format = { type: "json_schema" as const, name: "answer", schema, strict: true };
    const run = await Run.begin({ tools: [f], text: { format } });
    (await generation(1)).say("It", " is");
    await crash();
    expect((await run.retrieve()).status).toBe("in_progress");
    (await generation(2)).say("It", " is", " noon.").finish();
    (await generation(3)).say('{"t":', '"noon"}').finish();
    const response = await run.ended();
    expect(response.output).toMatchObject([{ content: [{ text: '{"t":"noon"}' }] }]);
    expectWhole(await run.replay(), response);
  });
});

describe("a run whose process dies in the middle of a bound answer", () => {
  const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

  it("of a strict function call completes the call: its item, id and arguments so far stay", async () => {
    const run = await Run.begin({ tools: [{ ...f, parameters, strict: true }] });
    (await generation(1)).call("f", '{"ci').call(undefined, 'ty": "R');
    const reader = await run.follow();
    await expect.poll(() => reader.events.at(-1)).toMatchObject({ delta: 'ty": "R' });
    await crash();
    await run.retrieve();
    const second = await generation(2);
    expect(second.prompt).toMatchObject({ continue_final_message: true, tool_choice: "none" });
    const open = '<tool_call>\n{"name": "f", "arguments": {"city": "R';
    expect(second.prompt.messages.at(-1)).toEqual({ role: "assistant", content: open });
    second.say("ome").say('"}').finish();
    // The model may make more calls, and makes none.
    const third = await generation(3);
    expect(third.prompt).toMatchObject({ continue_final_message: true, tool_choice: "auto" });
    expect(third.prompt.messages.at(-1)).toEqual({ role: "assistant", content: `${open}ome"}}\n</tool_call>` });
    third.finish();
    const response = await run.ended();
    expect(response).toMatchObject({
      status: "completed",
      output: [
        { type: "function_call", name: "f", call_id: "call_1", status: "completed", arguments: '{"city": "Rome"}' },
      ],
    });
    const events = await run.replay();
    expectWhole(events, response);
    expect(events.slice(0, reader.events.length)).toEqual(reader.events);
  });

  it("asks again from where the model leaves the format, and fails if it does so too often", async () => {
    const run = await Run.begin({ structured_outputs: { regex: "one( two)+ three" } });
    (await generation(1)).say("one");
    await run.logged("one");
    await crash();
    await run.retrieve();
    (await generation(2)).say(" two", " four");
    const third = await generation(3);
    expect(third.prompt.messages.at(-1)).toEqual({ role: "assistant", content: "one two" });
    third.finish();
    (await generation(4)).say(" five");
    (await generation(5)).say(" six");
    const response = await run.ended();
    expect(response).toMatchObject({
      status: "failed",
      error: { message: expect.stringContaining("did not complete it within its format") },
      output: [{ type: "message", status: "incomplete", content: [{ text: "one two " }] }],
    });
    expectWhole(await run.replay(), response);
  });

  it("that is whole asks nobody again", async () => {
    const run = await Run.begin({ structured_outputs: { choice: ["one two", "three"] } });
    (await generation(1)).say("one", " two");
    await run.logged("one two");
    await crash();
    const response = await run.ended();
    expect(response).toMatchObject({ status: "completed", output: [{ content: [{ text: "one two" }] }] });
    expectWhole(await run.replay(), response);
    expect(generations).toHaveLength(1);
  });
});

describe("a run whose process dies at a point where no model can resume", () => {
  it("in its reasoning begins it again in another item, and keeps all events that were read", async () => {
    const run = await Run.begin();
    (await generation(1)).think("Let us");
    const reader = await run.follow();
    await expect.poll(() => reader.events.at(-1)?.type).toBe("response.reasoning_text.delta");
    await crash();
    await run.retrieve();
    const second = await generation(2);
    expect(second.prompt.messages).toEqual([{ role: "user", content: "Count." }]);
    second.think("Let").say("one");
    await run.logged("one");
    await crash();
    await run.retrieve();
    // The run continues with the second reasoning.
    const third = await generation(3);
    expect(third.prompt).toMatchObject({ continue_final_message: true });
    expect(third.prompt.messages.at(-1)).toMatchObject({ role: "assistant", content: "one", reasoning: "Let" });
    third.say(" two").finish();
    const response = await run.ended();
    expect(response).toMatchObject({
      status: "completed",
      output: [
        { type: "reasoning", status: "incomplete", content: [{ text: "Let us" }] },
        { type: "reasoning", status: "completed", content: [{ text: "Let" }] },
        { type: "message", content: [{ text: "one two" }] },
      ],
    });
    expectWhole(await run.replay(), response);
  });

  it("too often without progress is given up, with the text so far", async () => {
    const run = await Run.begin();
    (await generation(1)).say("one", " two");
    await run.logged(" two");
    for (let death = 1; death <= 10; death += 1) {
      await crash();
      expect((await run.retrieve()).status).toBe("in_progress");
      await generation(death + 1);
    }
    await crash();
    const response = await run.ended();
    expect(response).toMatchObject({
      status: "failed",
      error: { message: "The server was restarted 10 times in the middle of the response." },
      output: [{ content: [{ text: "one two" }] }],
    });
    expectWhole(await run.replay(), response);
    expect(generations).toHaveLength(11);
  });

  it("more often, but with progress each time, is complete in the end", async () => {
    const run = await Run.begin();
    (await generation(1)).say("0");
    await run.logged("0");
    for (let death = 1; death <= 12; death += 1) {
      await crash();
      expect((await run.retrieve()).status).toBe("in_progress");
      (await generation(death + 1)).say(` ${death}`);
      // The text of a continuation comes after the earlier output.
      await run.logged(` ${death}`);
    }
    (await generation(13)).finish();
    const response = await run.ended();
    expect(response).toMatchObject({
      status: "completed",
      output: [{ content: [{ text: "0 1 2 3 4 5 6 7 8 9 10 11 12" }] }],
    });
    expectWhole(await run.replay(), response);
  });

  it("and whose history was deleted meanwhile fails, and blocks no other run", async () => {
    const parent = await Run.begin();
    (await generation(1)).say("Hello.").finish();
    await parent.ended();
    const { home } = parent.address;
    const child = await Run.begin({}, "Go on.", newTurnAddress(home), parent.address.turn);
    const other = await Run.begin({}, "Count.", newTurnAddress(home));
    (await generation(2)).say("one");
    await child.logged("one");
    await parent.home.delete(parent.address.turn);
    await crash();
    const response = await child.ended();
    expect(response).toMatchObject({ status: "failed", error: { message: expect.stringContaining("not found") } });
    expectWhole(await child.replay(), response);
    (await generation(4)).say("two").finish();
    expect((await other.ended()).status).toBe("completed");
  });
});

describe("an upstream that dies", () => {
  it("after mere white space is asked from the beginning, without repeated output", async () => {
    const run = await Run.begin();
    (await generation(1)).say("\n", "\n").cut();
    const second = await generation(2);
    expect(second.prompt.continue_final_message).toBeUndefined();
    second.say("\n\n", "Hello", " there").finish();
    const response = await run.ended();
    expect(response.output).toMatchObject([{ content: [{ text: "\n\nHello there" }] }]);
    expectWhole(await run.replay(), response);
  });

  it("after white space within the text gets the text without it, and may output other white space", async () => {
    const run = await Run.begin();
    (await generation(1)).say("one", "  ").cut();
    const second = await generation(2);
    expect(second.prompt.messages.at(-1)?.content).toBe("one");
    second.say(" ", " two", " three").finish();
    const response = await run.ended();
    expect(response.output).toMatchObject([{ content: [{ text: "one  two three" }] }]);
    expectWhole(await run.replay(), response);
  });

  it("between its last token and the finish chunk has ended at its limit", async () => {
    const run = await Run.begin({ max_output_tokens: 3 });
    (await generation(1)).say("one", " two", " three").cut();
    const response = await run.ended();
    expect(response).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
      output: [{ status: "incomplete", content: [{ text: "one two three" }] }],
      usage: { input_tokens: 1, output_tokens: 3, total_tokens: 4 },
    });
    expectWhole(await run.replay(), response);
    expect(generations).toHaveLength(1);
  });

  it("after the finish chunk has not failed", async () => {
    const run = await Run.begin();
    (await generation(1)).say("one").finish(true);
    expect(await run.ended()).toMatchObject({ status: "completed", usage: { output_tokens: 1 } });
    expect(generations).toHaveLength(1);
  });
});

describe("a run that others wait for", () => {
  it("fails for them with the same status, and the time to retry", async () => {
    const body = JSON.stringify({ error: { message: "Too busy.", type: "ServiceUnavailable", code: 503 } });
    vi.mocked(fetch).mockImplementation(
      async () =>
        new Response(body, { status: 503, headers: { "retry-after": "7", "content-type": "application/json" } }),
    );
    const run = await Run.begin({ background: false });
    const failure = { status: 503, code: "server_is_overloaded", headers: { "retry-after": "7" } };
    expect(await run.home.finished(run.address.turn)).toMatchObject({ failure });
    await crash();
    expect(await run.home.finished(run.address.turn)).toMatchObject({ failure });
    const events = await run.replay();
    expect(events.at(-1)?.type).toBe("response.failed");
    expect(JSON.stringify(events)).not.toContain("retry-after");
  });
});

describe("the watchdog", () => {
  it("fires within 60 seconds while a run lives, without disturbing it", async () => {
    const run = await Run.begin();
    const first = await generation(1);
    const alarm = () => runInDurableObject(run.home, (_, { storage }) => storage.getAlarm());
    expect((await alarm()) ?? Number.POSITIVE_INFINITY).toBeLessThanOrEqual(Date.now() + 60_000);
    for (let round = 0; round < 3; round += 1) {
      expect(await runDurableObjectAlarm(run.home)).toBe(true);
      expect((await alarm()) ?? Number.POSITIVE_INFINITY).toBeLessThanOrEqual(Date.now() + 60_000);
    }
    first.say("one").finish();
    expect((await run.ended()).status).toBe("completed");
    expect(generations).toHaveLength(1);
    // Afterwards only the retention needs an alarm.
    await runDurableObjectAlarm(run.home);
    expect((await alarm()) ?? 0).toBeGreaterThan(Date.now() + 60_000);
  });

  it("resumes every run of its home", async () => {
    const home = newTurnAddress().home;
    const runs = await Promise.all([1, 2, 3].map((n) => Run.begin({}, `Run ${n}.`, newTurnAddress(home))));
    await generation(3);
    await crash();
    expect(generations).toHaveLength(3);
    await runDurableObjectAlarm(env.HOME.getByName(`tenant:${home}`));
    await generation(6);
    for (const again of generations.slice(3)) again.say(again.prompt.messages[0]?.content ?? "").finish();
    for (const [index, run] of runs.entries()) {
      expect((await run.ended()).output).toMatchObject([{ content: [{ text: `Run ${index + 1}.` }] }]);
    }
  });
});

describe("eviction", () => {
  it.each(["the alarm", "an access"])("in the middle of a run loses nothing: %s resumes it", async (by) => {
    const run = await Run.begin();
    // This many events are logged without a reader. A reader's request would have to end before the object is evicted.
    const said = `one ${Array.from({ length: 13_000 }, (_, index) => index).join(" ")}`;
    (await generation(1)).say(said);
    await vi.waitFor(async () => expect(await run.sql("SELECT 1 FROM events WHERE seq_to > 2")).not.toEqual([]), {
      timeout: 120_000,
    });
    const evicted = evictDurableObject(run.home);
    // An evicted object is stopped at its next write.
    generations[0]?.say(" lost").finish();
    await evicted;
    if (by === "the alarm") await runDurableObjectAlarm(run.home);
    else await run.retrieve();
    const second = await generation(2);
    expect(second.prompt.messages.at(-1)?.content).toBe(said);
    second.say(" three").finish();
    const response = await run.ended();
    expect(response).toMatchObject({ status: "completed", output: [{ content: [{ text: `${said} three` }] }] });
    expectWhole(await run.replay(), response);
    expect(generations).toHaveLength(2);
  });

  it("after a run loses nothing of it", async () => {
    const run = await Run.begin();
    (await generation(1)).say("one", " two").finish();
    const [response, events] = [await run.ended(), await run.replay()];
    await evictDurableObject(run.home);
    expect(await run.retrieve()).toEqual(response);
    expect(await run.replay()).toEqual(events);
    expectWhole(events, response);
  });

  it("of a home with an orphan leaves it to be resumed", async () => {
    const run = await Run.begin();
    (await generation(1)).say("one");
    await run.logged("one");
    await run.breakTable("events");
    const reader = await run.follow();
    generations[0]?.say(" two").finish();
    await reader.end;
    await evictDurableObject(run.home);
    await run.mendTable("events");
    await runDurableObjectAlarm(run.home);
    (await generation(2)).say(" two").finish();
    const response = await run.ended();
    expect(response).toMatchObject({ status: "completed", output: [{ content: [{ text: "one two" }] }] });
    expectWhole(await run.replay(), response);
  });
});

describe("a run whose process died, with an unreadable row", () => {
  /** The damage to the rows. */
  const damages: [string, string][] = [
    ["its note is no JSON", "UPDATE runs SET body = substr(body, 2)"],
    ["its note is something else", "UPDATE runs SET body = '[]'"],
    ["its note has lost its request", `UPDATE runs SET body = '{"input":[],"model":{}}'`],
    ["the last block of its log is no JSON", "UPDATE events SET body = substr(body, 3) WHERE seq_from > 3"],
    ["the first block of its log is no JSON", "UPDATE events SET body = 'x' WHERE seq_from = 0"],
    ["its log is JSON, and no events", "UPDATE events SET body = '5' WHERE seq_from = 0"],
    ["a block of its log is gone", "DELETE FROM events WHERE seq_from = 0"],
    ["nothing of it can be read", "UPDATE runs SET body = 'x'; UPDATE events SET body = 'x'"],
  ];

  it.each(damages)("ends as failed for every reader: %s", async (_, damage) => {
    const run = await Run.begin({ instructions: "Aloud." });
    (await generation(1)).say("one", " two");
    await run.logged(" two");
    await run.sql(damage);
    await crash();
    const reader = await run.follow();
    await reader.end;
    expect(reader.done).toBe(true);
    const response = await run.ended();
    expect(response).toMatchObject({ status: "failed", background: true, error: { code: "server_error" } });
    expectWhole(reader.events, response);
    expect(reader.events.map(({ type }) => type as string).slice(-2)).toEqual(["error", "response.failed"]);
    // A reader that returns with more events than are left does not hang.
    const later = await run.follow(1_000);
    await later.end;
    expect(later.done).toBe(true);
    expect(await run.home.cancel(run.address.turn)).toMatchObject({ ok: true });
    expect(await run.sql("SELECT turn FROM runs")).toEqual([]);
    expect(await run.home.delete(run.address.turn)).toBe(true);
    expect(generations).toHaveLength(1);
  });

  it("is restored from its log if its note cannot be read", async () => {
    const run = await Run.begin({ instructions: "Aloud.", metadata: { who: "Ann" } });
    (await generation(1)).say("one", " two");
    await run.logged(" two");
    await run.sql("UPDATE runs SET body = 'x'");
    await crash();
    await run.retrieve();
    const said = { type: "message", status: "incomplete", content: [{ text: "one two" }] };
    const kept = { model: "m", instructions: "Aloud.", metadata: { who: "Ann" }, output: [said] };
    expect(await run.ended()).toMatchObject(kept);
  });

  it("harms no other response of its home", async () => {
    const earlier = await Run.begin();
    (await generation(1)).say("Hello.").finish();
    await earlier.ended();
    const { home } = earlier.address;
    const [broken, whole] = [
      await Run.begin({}, "broken", newTurnAddress(home)),
      await Run.begin({}, "whole", newTurnAddress(home)),
    ];
    (await generation(2)).say("one");
    (await generation(3)).say("uno");
    await whole.logged("uno");
    await whole.sql(`UPDATE runs SET body = 'x' WHERE turn = '${broken.address.turn}'`);
    await crash();
    expect((await earlier.retrieve()).output).toMatchObject([{ content: [{ text: "Hello." }] }]);
    (await generation(4)).say(" due").finish();
    expect((await whole.ended()).output).toMatchObject([{ content: [{ text: "uno due" }] }]);
    expect((await broken.ended()).status).toBe("failed");
    const after = await Run.begin({}, "after", newTurnAddress(home), earlier.address.turn);
    (await generation(5)).say("Still here.").finish();
    expect((await after.ended()).status).toBe("completed");
  });

  it("ends as failed also if the row belongs to the turn that it continues", async () => {
    const earlier = await Run.begin();
    (await generation(1)).say("Hello.").finish();
    await earlier.ended();
    const run = await Run.begin({}, "Go on.", newTurnAddress(earlier.address.home), earlier.address.turn);
    (await generation(2)).say("one");
    await run.logged("one");
    await run.sql(`UPDATE turns SET output = '[{]' WHERE turn = '${earlier.address.turn}'`);
    await crash();
    await runDurableObjectAlarm(run.home);
    const response = await run.ended();
    expect(response.status).toBe("failed");
    expectWhole(await run.replay(), response);
  });
});

describe("a storage that cannot be written to", () => {
  it.each(["events", "turns"])(
    "lets no reader hang, and writes nothing half; the run ends later (%s)",
    async (table) => {
      // The first turn makes the tables.
      const earlier = await Run.begin();
      (await generation(1)).say("Hello.").finish();
      await earlier.ended();
      const run = await Run.begin({}, "Count.", newTurnAddress(earlier.address.home));
      const first = await generation(2);
      first.say("one", " two");
      await run.logged(" two");
      const readers = [await run.follow(), await run.follow(3)];
      await run.breakTable(table);
      first.say(" three").finish();
      await Promise.all(readers.map(({ end }) => end));
      for (const reader of readers) {
        expect(reader.done).toBe(false);
        for (const { type } of reader.events) expect([...TERMINAL, "error"]).not.toContain(type);
      }
      // The run is noted, not settled; all sent events are stored.
      expect(await run.sql("SELECT turn FROM runs")).toEqual([{ turn: run.address.turn }]);
      expect(await run.sql(`SELECT turn FROM turns WHERE turn = '${run.address.turn}'`)).toEqual([]);
      await run.mendTable(table);
      expect((await run.retrieve()).status).toBe("in_progress");
      const next = await generation(3);
      expect("one two three".startsWith(next.prompt.messages.at(-1)?.content ?? "")).toBe(true);
      if (next.prompt.messages.at(-1)?.content === "one two") next.say(" three");
      next.finish();
      const response = await run.ended();
      expect(response).toMatchObject({ status: "completed", output: [{ content: [{ text: "one two three" }] }] });
      const events = await run.replay();
      expectWhole(events, response);
      for (const reader of readers) {
        const from = reader.events[0]?.sequence_number ?? 0;
        expect(reader.events).toEqual(events.slice(from, from + reader.events.length));
      }
    },
  );

  it("stops the model, whose output could not be stored", async () => {
    const run = await Run.begin();
    const first = await generation(1);
    first.say("one");
    await run.logged("one");
    const reader = await run.follow();
    await run.breakTable("events");
    // The write fails at a word or after it, so the next word may be the first one too many.
    await eventually(() => {
      first.say(" more");
      return first.aborted;
    }, "It still speaks.");
    await reader.end;
  });

  it.each(["runs", "events"])("accepts no run (%s)", async (table) => {
    const earlier = await Run.begin();
    (await generation(1)).say("Hello.").finish();
    await earlier.ended();
    await earlier.breakTable(table);
    const run = new Run({}, "Count.", newTurnAddress(earlier.address.home));
    // The error is checked within the object, because one that leaves it is reported as unhandled.
    const refused = await runInDurableObject(run.home, (home: Home) =>
      home.startRun(JSON.stringify(run.spec), "ticket", 0).then(
        () => false,
        () => true,
      ),
    );
    expect(refused).toBe(true);
    await earlier.mendTable(table);
    // A failed run is not running for any reader.
    await runDurableObjectAlarm(run.home);
    expect(await run.home.retrieve(run.address.turn)).toBeNull();
    expect(generations).toHaveLength(1);
  });
});

describe("a reader", () => {
  it("never gets an event that is not in the log", async () => {
    const run = await Run.begin();
    const first = await generation(1);
    const words = Array.from({ length: 40 }, (_, index) => ` word${index}`);
    const seen = runInDurableObject(run.home, async (home: Home, { storage }) => {
      const answer = await home.fetch(new Request(`http://home/events?turn=${run.address.turn}`));
      let last = -1;
      let reads = 0;
      let text = "";
      for await (const part of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
        text = text.slice(text.lastIndexOf("\n") + 1) + part;
        const { last: logged } = storage.sql
          .exec<{ last: number | null }>("SELECT MAX(seq_to) AS last FROM events")
          .one();
        // The log of an ended run is in its turn's row.
        const isSettled = logged === null && storage.sql.exec("SELECT 1 FROM turns").toArray().length === 1;
        const durable = isSettled ? Number.POSITIVE_INFINITY : (logged ?? -1);
        for (const [, sequence] of text.matchAll(/"sequence_number":(\d+)/g)) last = Number(sequence);
        expect(last).toBeLessThanOrEqual(durable);
        reads += 1;
      }
      return { last, reads };
    });
    for (const word of words) {
      first.say(word);
      await eventually(() => first.read, "The home has not read it.");
    }
    first.finish();
    const { last, reads } = await seen;
    expect(last).toBe((await run.replay()).length - 1);
    expect(reads).toBeGreaterThan(2);
  });
});

describe("a response with the maximum number of readers", () => {
  it("refuses another until one has disconnected; another response of the home does not", async () => {
    const run = await Run.begin();
    const other = await Run.begin({}, "Other.", newTurnAddress(run.address.home));
    const first = await generation(1);
    const readers = await Promise.all(Array.from({ length: 100 }, () => run.follow()));
    const events = ({ home, address }: Run) => home.fetch(`http://home/events?turn=${address.turn}`);
    const refused = await events(run);
    expect(refused.status).toBe(429);
    expect(refused.headers.get("retry-after")).toMatch(/^\d+$/);
    new Reader(await events(other)).leave();
    readers[0]?.leave();
    // A reader's disconnection is noticed at the next write.
    first.say("one", " two");
    const again = await vi.waitFor(
      async () => {
        const answer = await events(run);
        if (answer.status !== 200) throw new Error("Still full.");
        return new Reader(answer);
      },
      { timeout: 120_000, interval: 20 },
    );
    first.finish();
    await again.end;
    expect(again.done).toBe(true);
    await Promise.all(readers.slice(1).map((reader) => reader.end));
    expect(readers.slice(1).every(({ done }) => done)).toBe(true);
  });
});

describe("a home with the maximum number of runs", () => {
  it("refuses another with a time to retry, and accepts it when one has ended", async () => {
    const { home } = newTurnAddress();
    const runs: Run[] = [];
    for (let index = 0; index < 64; index += 1) runs.push(await Run.begin({}, `${index}`, newTurnAddress(home)));
    const late = new Run({}, "late", newTurnAddress(home));
    expect(await late.start()).toMatchObject({
      ok: false,
      error: { status: 429, code: "rate_limit_exceeded", headers: { "retry-after": expect.any(String) } },
    });
    expect(await late.home.retrieve(late.address.turn)).toBeNull();
    (await generation(1)).say("done").finish();
    const [first] = runs;
    await first?.ended();
    expect(await late.start()).toMatchObject({ ok: true });
  });

  it("refuses one that is too long beside the others, and accepts it alone", async () => {
    const { home } = newTurnAddress();
    const small = await Run.begin({}, "small", newTurnAddress(home));
    const long = "long ".repeat(1_200_000);
    const [first, second] = [long, long].map((text) => new Run({ instructions: text }, long, newTurnAddress(home)));
    expect(await first?.start()).toMatchObject({ ok: true });
    expect(await second?.start()).toMatchObject({ ok: false, error: { status: 429, code: "rate_limit_exceeded" } });
    expect(await second?.home.retrieve(second.address.turn)).toBeNull();
    const also = await Run.begin({}, "also small", newTurnAddress(home));
    for (const run of [small, also, first]) await run?.home.cancel(run.address.turn);
    expect(await second?.start()).toMatchObject({ ok: true });
  });
});
