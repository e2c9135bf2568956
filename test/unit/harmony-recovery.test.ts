import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import { newTurnAddress, type TurnAddress } from "@responses-edge/responses-api/ids";
import { tools } from "@responses-edge/responses-api/tools";
import { parse } from "@responses-edge/responses-api/validation-errors";
import type { ResponseStreamEvent } from "openai/resources/responses/responses";
import { describe, expect, it, vi } from "vitest";
import { loadConfig } from "../../src/config/index.ts";
import type { Env } from "../../src/env.ts";
import { fromCell, type StoredCell } from "../../src/store/objects/row-pieces.ts";
import * as rig from "./recovery-rig.ts";
import { crash, decode, expectWholeLog, f, idsOf } from "./recovery-rig.ts";

/** Background runs of gpt-oss whose process dies: they continue after the last token in their log. */

rig.useTokenizer();

/** A generation of gpt-oss, one token at a time. */
class Completion extends rig.Generation {
  readonly prompt: number[];
  /** The home's token limit. */
  readonly maxTokens: number | null;
  readonly #tokens = new rig.TokenChunks();

  constructor(body: string) {
    super();
    const { prompt, max_tokens } = JSON.parse(body) as { prompt: string | number[]; max_tokens: number | null };
    this.prompt = typeof prompt === "string" ? idsOf(prompt) : prompt;
    this.maxTokens = max_tokens;
  }

  protected override get promptTokens(): number {
    return this.prompt.length;
  }

  /** Outputs some tokens at once. */
  sayTogether(ids: readonly number[]): void {
    this.send([{ choices: [{ index: 0, text: decode(ids), token_ids: ids, finish_reason: null }] }], ids.length);
  }

  /** Outputs some tokens. The last one may be the reason for the end. */
  say(ids: readonly number[], finish: "stop" | "length" | null = null): this {
    this.send(this.#tokens.of(ids, finish), ids.length);
    return this;
  }

  /** Outputs the rest of an answer, and its usage. */
  finish(rest: readonly number[], reason: "stop" | "length" = "stop"): void {
    this.say(rest, reason).end();
  }
}

const modelServer = rig.useModelServer({
  newGeneration: (body) => new Completion(body),
  promptText: ({ prompt }) => decode(prompt),
});

class Run extends rig.NamedRun<Completion> {
  static begin(
    request: Partial<CreateRequest> = {},
    address?: TurnAddress,
    parent?: string,
    kept: Pick<rig.RunOptions, "tenant" | "isHidden"> = {},
  ): Promise<Run> {
    return new Run({ server: modelServer, engine: "harmony", request, address, parent, ...kept }).begin();
  }

  /** The lines of the log in the turn's row. */
  async keptLog(): Promise<string> {
    const [row] = await this.sql<{ log: StoredCell }>(`SELECT log FROM turns WHERE turn = '${this.address.turn}'`);
    return row ? fromCell(row.log) : "";
  }

  /** The token ids in the log's records since the last round. */
  async loggedIds(): Promise<number[]> {
    const rows = await this.sql<{ body: StoredCell }>("SELECT body FROM events ORDER BY seq_from, part");
    let ids: number[] = [];
    for (const line of rows.flatMap(({ body }) => fromCell(body).split("\n"))) {
      if (!line.startsWith("[")) continue;
      const [record] = JSON.parse(line) as [{ sampled?: { ids: number[] } }];
      // Hidden reasoning belongs to the round, as times do.
      if (["thought", "thought_ended", "model_call", "item_at"].some((kind) => kind in record)) continue;
      ids = record.sampled ? [...ids, ...record.sampled.ids] : [];
    }
    return ids;
  }
}

/** The events of a stream's bytes; a record would be no event, and no other data is expected. */
function eventsIn(stream: string): ResponseStreamEvent[] {
  expect(stream.endsWith("data: [DONE]\n\n")).toBe(true);
  const data = [...stream.matchAll(/^data: (.*)$/gm)].map(([, text]) => text ?? "");
  expect(data.filter((text) => !text.startsWith("{"))).toEqual(["[DONE]"]);
  expect(stream).not.toMatch(/"(sampled|called|answering|dispatched|answered|round|model_call|item_at)"/);
  return data.slice(0, -1).map((json) => JSON.parse(json) as ResponseStreamEvent);
}

/** Checks the rules of every log. */
async function expectWhole(run: Run): Promise<void> {
  const response = await run.retrieve();
  const events = eventsIn(await run.replay());
  expectWholeLog(events, response);
  expect(events.filter(({ type }) => type === "response.in_progress")).toHaveLength(1);
  const done = events.filter((event) => event.type === "response.output_item.done");
  expect(done.map(({ item }) => item)).toEqual(response.output);
}

const ANALYSIS = "<|channel|>analysis<|message|>Let us see 🧿𓂀.<|end|><|start|>assistant";
const PREAMBLE = "<|channel|>commentary<|message|>One moment, Grüße.<|end|><|start|>assistant";
const CALL_F = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"city": "Zürich 🏔️"}<|call|>';
const CALL_NOBODY = "<|channel|>analysis to=browser.search code<|message|>{}<|call|>";
const CALL_PATCH = '<|channel|>commentary to=edits.patch<|message|>*** "Zürich"\n+🏔️ \\<|call|>';
const CALL_PATCH_JSON =
  '<|channel|>commentary to=edits.patch json<|message|>{"input": "a\\n\\ud83c\\udfd4 \\u00e9"}<|call|>';
const CALL_SHELL = '<|channel|>commentary to=functions.shell json<|message|>{"commands": ["ls", "pwd"]}<|call|>';
const CLIENT_TOOLS = parse(tools, [
  { type: "namespace", name: "edits", description: "", tools: [{ type: "custom", name: "patch" }] },
  { type: "shell" },
]);
const FINAL = "<|channel|>final<|message|>So it is 🦜, 你好.<|return|>";

/** A run without a death: its prompts, and its stored data. */
async function uninterrupted(
  request: Partial<CreateRequest>,
  answers: string[],
  reason: "stop" | "length" = "stop",
  kept?: Pick<rig.RunOptions, "tenant" | "isHidden">,
) {
  const run = await Run.begin(request, undefined, undefined, kept);
  const prompts: number[][] = [];
  for (const [index, answer] of answers.entries()) {
    const completion = await run.generation(index + 1);
    prompts.push(completion.prompt);
    completion.finish(idsOf(answer), reason);
  }
  const response = await run.ended();
  await expectWhole(run);
  return { run, response, prompts, kept: await run.kept() };
}

/** Hides reasoning in all homes, which have one environment, until it is disposed of. */
async function hideReasoning(): Promise<Disposable> {
  const home = env.HOME.getByName("any");
  const config = await runInDurableObject(home, (instance) => loadConfig((instance as unknown as { env: Env }).env));
  config.hidesReasoning = true;
  return {
    [Symbol.dispose]: () => {
      config.hidesReasoning = false;
    },
  };
}

/** A prompt without the name of its run. */
function without(run: Run, prompt: readonly number[]): string {
  return decode(prompt).replaceAll(run.name, "");
}

describe("a run whose process dies", () => {
  /** Variants of an answer of another row. That row dies after each token, this one after every third. */
  interface Circumstances {
    summary?: "auto";
    tenant?: string;
    isHidden?: true;
  }
  it.each<[what: string, answer: string, circumstances?: Circumstances]>([
    ["thoughts, a preamble and a call", ANALYSIS + PREAMBLE + CALL_F],
    ["thoughts and an answer", ANALYSIS + FINAL],
    ["a custom tool's input", ANALYSIS + CALL_PATCH],
    ["a custom tool's input as JSON", ANALYSIS + CALL_PATCH_JSON],
    ["a call of a shell", ANALYSIS + CALL_SHELL],
    ["a summary and an answer", ANALYSIS + FINAL, { summary: "auto" }],
    ["thoughts that are sealed with a call", ANALYSIS + CALL_F, { tenant: "acme" }],
    ["thoughts that are hidden and sealed with a call", ANALYSIS + CALL_F, { tenant: "acme", isHidden: true }],
  ])("anywhere in %s continues after the last token in its log", async (_, answer, circumstances) => {
    const { summary, tenant, isHidden = false } = circumstances ?? {};
    using _shown = isHidden ? await hideReasoning() : undefined;
    const request = { tools: [f, ...CLIENT_TOOLS], ...(summary && { reasoning: { summary } }) };
    const whole = await uninterrupted(request, [answer], "stop", { tenant, isHidden });
    expect(JSON.stringify(whole.kept)).toMatch(tenant ? /"encrypted_content":".*Let us see/ : /Let us see/);
    expect((await whole.run.keptLog()).includes("Let us see")).toBe(!isHidden);
    const ids = idsOf(answer);
    // All answers begin with the same reasoning, in which only one row dies.
    const isFirst = answer.includes(PREAMBLE);
    const thoughts = idsOf(ANALYSIS).length;
    const deaths = [...ids.keys()].filter((said) => (circumstances ? said % 3 === 0 : isFirst || said >= thoughts));
    const begin = async (said: number) => ({
      said,
      run: await Run.begin(request, undefined, undefined, { tenant, isHidden }),
    });
    const runs = await Promise.all(deaths.map(begin));
    await Promise.all(
      runs.map(async ({ run, said }) => {
        (await run.generation(1)).say(ids.slice(0, said));
        await run.logged(1);
      }),
    );
    const logged = new Map(
      await Promise.all(runs.map(async ({ run, said }) => [said, await run.loggedIds()] as const)),
    );
    await crash();
    let inTheMiddle = 0;
    await Promise.all(
      runs.map(async ({ run, said }) => {
        if (said % 2 === 0) await run.retrieve();
        else await runDurableObjectAlarm(run.home);
        const [first, second] = [await run.generation(1), await run.generation(2)];
        const sampled = logged.get(said) ?? [];
        expect(sampled).toEqual(ids.slice(0, sampled.length));
        expect(second.prompt).toEqual([...first.prompt, ...sampled]);
        if (sampled.length > 0) inTheMiddle += 1;
        second.finish(ids.slice(sampled.length));
        const response = await run.ended();
        expect([said, response.usage]).toEqual([said, whole.response.usage]);
        expect([said, await run.kept()]).toEqual([said, whole.kept]);
        await expectWhole(run);
        expect(run.asked).toHaveLength(2);
      }),
    );
    // All runs except those that died within the first header.
    expect(inTheMiddle).toBeGreaterThanOrEqual(deaths.filter((said) => said >= 6).length);
  });

  it("again and again is complete in the end, and a reader who begins anywhere sees no record", async () => {
    const answer = ANALYSIS + PREAMBLE + CALL_F;
    const whole = await uninterrupted({ tools: [f] }, [answer]);
    const ids = idsOf(answer);
    const run = await Run.begin({ tools: [f] });
    for (let death = 1; death <= 8; death += 1) {
      const completion = await run.generation(death);
      const said = completion.prompt.length - (run.asked[0]?.prompt.length ?? 0);
      completion.say(ids.slice(said, said + 6));
      await run.logged(death);
      await crash();
      await run.retrieve();
    }
    const last = await run.generation(9);
    last.finish(ids.slice(last.prompt.length - (run.asked[0]?.prompt.length ?? 0)));
    const response = await run.ended();
    expect(response.usage).toEqual(whole.response.usage);
    expect(await run.kept()).toEqual(whole.kept);
    await expectWhole(run);
    const all = eventsIn(await run.replay());
    for (let after = 0; after < all.length - 1; after += 1) {
      expect(eventsIn(await run.replay(after))).toEqual(all.slice(after + 1));
    }
  });

  it("in a repeated round continues there, with the messages of the earlier round", async () => {
    const answers = [ANALYSIS + CALL_NOBODY, ANALYSIS + CALL_NOBODY, ANALYSIS + FINAL];
    const request = { tools: [f], enable_response_messages: true };
    const whole = await uninterrupted(request, answers);
    const [first = [], second = [], third = []] = answers.map(idsOf);
    const runs = await Promise.all(third.map(() => Run.begin(request)));
    await Promise.all(
      runs.map(async (run, said) => {
        (await run.generation(1)).finish(first);
        (await run.generation(2)).finish(second);
        (await run.generation(3)).say(third.slice(0, said));
        await run.logged(3);
      }),
    );
    await crash();
    await Promise.all(
      runs.map(async (run) => {
        await run.retrieve();
        const [, two, three, again] = await Promise.all([1, 2, 3, 4].map((number) => run.generation(number)));
        if (!two || !three || !again) throw new Error("Not asked for.");
        // A round's record is written with an event of the next round: until then no reader has seen its end.
        const [base, answer] = again.prompt.length < three.prompt.length ? [two.prompt, second] : [three.prompt, third];
        const sampled = again.prompt.slice(base.length);
        expect(again.prompt.slice(0, base.length)).toEqual(base);
        expect(sampled).toEqual(answer.slice(0, sampled.length));
        again.finish(answer.slice(sampled.length));
        if (answer === second) {
          const last = await run.generation(5);
          expect(last.prompt).toEqual(three.prompt);
          last.finish(third);
        }
        const response = await run.ended();
        expect(response.usage).toEqual(whole.response.usage);
        expect(await run.kept()).toEqual(whole.kept);
        await expectWhole(run);
        for (const field of ["input_messages", "output_messages"] as const) {
          const shown = JSON.stringify((response as unknown as Record<string, unknown>)[field]);
          const expected = JSON.stringify((whole.response as unknown as Record<string, unknown>)[field]);
          expect(shown.replaceAll(run.name, "")).toBe(expected.replaceAll(whole.run.name, ""));
        }
      }),
    );
  });

  it("between a call of an unoffered tool and the next round continues with the next round", async () => {
    const answers = [ANALYSIS + CALL_NOBODY, FINAL];
    const whole = await uninterrupted({ tools: [f] }, answers);
    const run = await Run.begin({ tools: [f] });
    // The call is complete, but its usage is lost.
    (await run.generation(1)).say(idsOf(answers[0] ?? ""), "stop");
    await run.logged(1);
    expect(await run.loggedIds()).toEqual(idsOf(answers[0] ?? ""));
    await crash();
    await run.retrieve();
    const second = await run.generation(2);
    expect(without(run, second.prompt)).toBe(without(whole.run, whole.prompts[1] ?? []));
    second.finish(idsOf(FINAL));
    const response = await run.ended();
    expect(response.usage).toEqual(whole.response.usage);
    expect(await run.kept()).toEqual(whole.kept);
    await expectWhole(run);
  });

  it("after its last token, before it was settled, sends no more requests", async () => {
    const answer = ANALYSIS + FINAL;
    const whole = await uninterrupted({}, [answer]);
    const run = await Run.begin();
    (await run.generation(1)).say(idsOf(answer), "stop");
    await run.logged(1);
    await crash();
    const response = await run.ended();
    expect(response).toMatchObject({ status: "completed", usage: whole.response.usage });
    expect(await run.kept()).toEqual(whole.kept);
    await expectWhole(run);
    expect(run.asked).toHaveLength(1);
  });

  it("at its limit, before it was settled, sends no more requests, and has its messages", async () => {
    const ids = idsOf(ANALYSIS + FINAL).slice(0, -4);
    const request = { max_output_tokens: ids.length, include_reasoning: false };
    const whole = await uninterrupted(request, [decode(ids)], "length");
    expect(whole.response).toMatchObject({ status: "incomplete", usage: { output_tokens: ids.length } });
    const run = await Run.begin(request);
    (await run.generation(1)).say(ids);
    await run.logged(1);
    await crash();
    const response = await run.ended();
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(response.usage).toEqual(whole.response.usage);
    expect(await run.kept()).toEqual(whole.kept);
    await expectWhole(run);
    expect(run.asked).toHaveLength(1);
  });

  it("requests the rest of its token limit", async () => {
    const ids = idsOf(ANALYSIS + FINAL);
    const run = await Run.begin({ max_output_tokens: 50 });
    (await run.generation(1)).say(ids.slice(0, 12));
    await run.logged(1);
    await crash();
    await run.retrieve();
    const second = await run.generation(2);
    expect(second.maxTokens).toBe(50 - (await run.loggedIds()).length);
    expect(second.maxTokens).toBeLessThan(42);
  });
});

describe("long hidden reasoning", () => {
  const said = Array.from({ length: 200 }, (_, index) => `Hmm, let me think of ${index}. `).join("");
  const thoughts = `<|channel|>analysis<|message|>${said}<|end|><|start|>assistant`;

  it("is continued after a crash in it, because it is recorded from time to time, and after one in the answer", async () => {
    const ids = idsOf(thoughts + FINAL);
    const request = { include_reasoning: false };
    const whole = await uninterrupted(request, [thoughts + FINAL]);
    const run = await Run.begin(request);
    (await run.generation(1)).say(ids.slice(0, 500));
    // The time after which records are written without an event.
    await vi.waitFor(async () => expect(await run.loggedIds()).toHaveLength(500), { timeout: 30_000, interval: 100 });
    await crash();
    await run.retrieve();
    const second = await run.generation(2);
    const base = run.asked[0]?.prompt ?? [];
    expect(second.prompt).toEqual([...base, ...ids.slice(0, 500)]);
    const begun = 500;
    second.say(ids.slice(begun, -3));
    await run.logged(2);
    await crash();
    await run.retrieve();
    const third = await run.generation(3);
    expect(third.prompt).toEqual([...base, ...ids.slice(0, third.prompt.length - base.length)]);
    expect(third.prompt.length - base.length).toBeGreaterThan(ids.length - 6);
    third.finish(ids.slice(third.prompt.length - base.length));
    const response = await run.ended();
    expect(response.output.map(({ type }) => type)).toEqual(["message"]);
    expect(response.usage).toEqual(whole.response.usage);
    expect(await run.kept()).toEqual(whole.kept);
    await expectWhole(run);
  });
});

describe("a turn that allows one call only", () => {
  it("drops another one also after a crash between the two", async () => {
    const two = `${CALL_F.replace("<|call|>", "<|end|>")}<|start|>assistant${CALL_F}`;
    const request = { tools: [f], parallel_tool_calls: false };
    const whole = await uninterrupted(request, [two]);
    expect(whole.response.output).toHaveLength(1);
    const ids = idsOf(two);
    const at = idsOf(CALL_F).length;
    const positions = [at, at + 2, at + 5, ids.length - 4];
    const runs = await Promise.all(positions.map(() => Run.begin(request)));
    await Promise.all(
      runs.map(async (run, index) => {
        (await run.generation(1)).say(ids.slice(0, positions[index]));
        await run.logged(1);
      }),
    );
    await crash();
    await Promise.all(
      runs.map(async (run) => {
        await run.retrieve();
        const second = await run.generation(2);
        second.finish(ids.slice(second.prompt.length - (run.asked[0]?.prompt.length ?? 0)));
        const response = await run.ended();
        expect(response.output).toHaveLength(1);
        expect(await run.kept()).toEqual(whole.kept);
        await expectWhole(run);
      }),
    );
  });
});

describe("eviction", () => {
  it("in the middle of a call's arguments loses nothing that was logged", async () => {
    const long = "0123456789 ".repeat(7_000);
    const answer = `${ANALYSIS}<|channel|>commentary to=functions.f json<|message|>{"x": "${long}"}<|call|>`;
    const ids = idsOf(answer);
    const run = await Run.begin({ tools: [f] });
    const first = await run.generation(1);
    const half = ids.length >> 1;
    first.say(ids.slice(0, 40));
    for (let from = 40; from < half; from += 1_000) first.sayTogether(ids.slice(from, Math.min(from + 1_000, half)));
    await vi.waitFor(async () => expect((await run.loggedIds()).length).toBeGreaterThan(1_000), { timeout: 30_000 });
    // A failed write is given up, and the object has nothing more to do.
    await run.breakTable("events");
    const reader = run.replay().catch(() => "");
    first.finish(ids.slice(half));
    await reader;
    await evictDurableObject(run.home);
    await run.mendTable("events");
    const logged = await run.loggedIds();
    await runDurableObjectAlarm(run.home);
    const second = await run.generation(2);
    expect(second.prompt).toEqual([...first.prompt, ...ids.slice(0, logged.length)]);
    second.finish(ids.slice(logged.length));
    const response = await run.ended();
    expect(response.output).toMatchObject([{}, { type: "function_call", arguments: `{"x": "${long}"}` }]);
    expect(response.usage?.output_tokens).toBe(ids.length);
    await expectWhole(run);
  });
});

describe("a storage that cannot settle a turn", () => {
  it("lets the run end later, without another request to the model", async () => {
    const answer = ANALYSIS + FINAL;
    const whole = await uninterrupted({}, [answer]);
    // The first turn makes the tables.
    const earlier = await Run.begin();
    (await earlier.generation(1)).finish(idsOf(FINAL));
    await earlier.ended();
    const run = await Run.begin({}, newTurnAddress(earlier.address.home));
    await run.breakTable("turns");
    const reader = run.replay().catch(() => "");
    (await run.generation(1)).finish(idsOf(answer));
    await reader;
    expect(await run.sql(`SELECT turn FROM turns WHERE turn = '${run.address.turn}'`)).toEqual([]);
    await run.mendTable("turns");
    const ids = idsOf(answer);
    const logged = await run.loggedIds();
    await run.retrieve();
    if (logged.length < ids.length) (await run.generation(2)).finish(ids.slice(logged.length));
    const response = await run.ended();
    expect(response.usage).toEqual(whole.response.usage);
    expect(await run.kept()).toEqual(whole.kept);
    await expectWhole(run);
    expect(run.asked.length).toBe(logged.length < ids.length ? 2 : 1);
  });
});
