import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { newTurnAddress } from "@responses-edge/responses-api/ids";
import type { Engine, ModelDelta } from "@responses-edge/turn/contract/engine";
import { newMeasurements } from "@responses-edge/turn/contract/measurements";
import type { PendingCall } from "@responses-edge/turn/contract/tool-session";
import { isRecord, recordLine } from "@responses-edge/turn/records";
import { readLoggedTurn } from "@responses-edge/turn/resume";
import { programFingerprints } from "@responses-edge/turn/sealed-content/program-fingerprint";
import { compactionCodec } from "@responses-edge/turn/sealed-content/sealer";
import { Turn } from "@responses-edge/turn/turn";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { EventLogStore } from "../../../src/store/home/event-log.ts";
import { EventLogWriter } from "../../../src/store/home/log-writer.ts";
import { Tables } from "../../../src/store/home/tables.ts";
import { fromCell } from "../../../src/store/objects/row-pieces.ts";
import { PLUGINS } from "../../../src/tools/plugins.ts";
import { codePoint } from "../../code-points.ts";

const CONFIG = { intervalMs: 400, unreadIntervalMs: 4_000 };

type Row = { seq_from: number; seq_to: number; part: number; bytes: number };

interface Rows {
  (): Row[];
  /** The number of written rows, including those that were replaced since. */
  written: () => number;
}

/** An event log in an object of its own. `kept`: the part of it in the row of its turn "t". */
function withLog<T>(
  use: (log: EventLogStore, rows: Rows, sql: SqlStorage, kept: { log?: string }) => T | Promise<T>,
): Promise<T> {
  const stub = env.HOME.getByName(`tenant:${newTurnAddress().home}`);
  return runInDurableObject(stub, (_, { storage }) => {
    const { sql } = storage;
    let written = 0;
    const counted = new Proxy(sql, {
      get: (target, key) => {
        if (key !== "exec") return Reflect.get(target, key);
        return (query: string, ...values: unknown[]) => {
          if (query.startsWith("INSERT")) written += 1;
          return target.exec(query, ...values);
        };
      },
    });
    const rows = () =>
      sql
        .exec<Row>(
          "SELECT seq_from, seq_to, part, octet_length(body) AS bytes FROM events ORDER BY turn, seq_from, part",
        )
        .toArray();
    const kept: { log?: string } = {};
    const turns = { hasLog: () => kept.log !== undefined, log: () => kept.log, texts: () => "" };
    const transactionSync = storage.transactionSync.bind(storage) as DurableObjectStorage["transactionSync"];
    const log = new EventLogStore({ transactionSync }, new Tables(counted), turns);
    return use(log, Object.assign(rows, { written: () => written }), sql, kept);
  });
}

/** All events of a log after one of them. */
function eventsAfter(log: EventLogStore, after: number): string[] {
  const found: string[] = [];
  for (let block = log.next("t", after); block; block = log.next("t", block.to)) {
    expect(block.from).toBe(after + 1 + found.length);
    expect(block.events).toHaveLength(block.to - block.from + 1);
    found.push(...block.events);
  }
  return found;
}

const delta = (sequence: number, text: string) =>
  JSON.stringify({ type: "response.output_text.delta", item_id: "msg", sequence_number: sequence, delta: text });

const events = (count: number, text = "x") => Array.from({ length: count }, (_, index) => delta(index, text));

describe("the rows of a run", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** A model that outputs `count` tokens, one at a time. */
  function talker(tokens: number, perSecond: number): Engine {
    async function* deltas(): AsyncGenerator<ModelDelta[]> {
      for (let index = 0; index < tokens; index += 1) {
        await new Promise((resolve) => setTimeout(resolve, 1_000 / perSecond));
        yield [{ kind: "text", text: ` token${index}` }];
      }
      yield [{ kind: "finish", reason: "stop" }];
    }
    return {
      noteRole: "user",
      generate: async () => deltas(),
      resumption: () => undefined,
      unboundThinking: () => undefined,
      parts: async () => [],
      rendered: async () => undefined,
      renderedText: async () => "",
      measure: async () => ({ tokens: 1, contextWindow: 100_000 }),
      accept: (request) => request,
      mayCall: () => true,
      inputMessages: async () => [],
      answerMessages: () => [],
    };
  }

  /** Writes a whole run to its log, as the run host does. `readers` gives their number for each second. */
  async function run(
    log: EventLogStore,
    readers: (second: number) => number,
    tokens = 1000,
    config = CONFIG,
  ): Promise<void> {
    const address = newTurnAddress();
    const writer = new EventLogWriter(log, address.turn, 0, config);
    const turn = new Turn({
      asked: {
        request: { background: true, model: "m" },
        address,
        model: { name: "m", upstream: "m" },
        cacheSalt: "",
        createdAt: Date.now(),
      },
      past: { history: [], replays: [], input: [], removed: [] },
      model: { engine: talker(tokens, 50), isServerGone: async () => false, leaveServer: () => {} },
      bounds: {
        maxRetries: 0,
        maxFruitless: 0,
        outageMs: 0,
        outputLength: Number.POSITIVE_INFINITY,
        maxRounds: 32,
        repetitionGuard: "on",
      },
      tools: { plugins: PLUGINS },
      secrets: {
        hidesReasoning: false,
        seal: undefined,
        compactions: compactionCodec([], ""),
        programs: programFingerprints([], ""),
      },
      host: { signal: new AbortController().signal, clock: Date.now, measured: newMeasurements(), sink: writer },
    });
    turn.queue();
    let ended = false;
    const running = turn
      .run(turn.start(), async (_, terminate) => {
        terminate();
        writer.write();
      })
      .finally(() => {
        ended = true;
      });
    const attached: (() => void)[] = [];
    for (let second = 0; !ended && second < 100; second += 1) {
      while (attached.length < readers(second)) attached.push(writer.attach());
      while (attached.length > readers(second)) attached.pop()?.();
      await vi.advanceTimersByTimeAsync(1_000);
    }
    const { outcome } = await running;
    expect(outcome.status).toBe("completed");
    expect([...log.all(address.turn)].filter((line) => !isRecord(line))).toHaveLength(3 + 2 + tokens + 4);
    expect(readLoggedTurn(log.all(address.turn))).toMatchObject({
      sequence: tokens + 9,
      deltas: { all: tokens },
    });
  }

  it("are at most 60 for 1,000 tokens at 50 a second with a reader", async () => {
    await withLog(async (log, rows) => {
      await run(log, () => 1);
      expect(rows.written()).toBeLessThanOrEqual(60);
      // Blocks are still frequent enough for readers.
      expect(rows.written()).toBeGreaterThan(40);
    });
  });

  it("are no more for many readers", async () => {
    await withLog(async (log, rows) => {
      await run(log, () => 25, 250);
      expect(rows.written()).toBeLessThanOrEqual(25);
    });
  });

  it("are at most 10 without a reader", async () => {
    await withLog(async (log, rows) => {
      await run(log, () => 0);
      expect(rows.written()).toBeLessThanOrEqual(10);
    });
  });

  it("follow the operator's interval, within the size of a block", async () => {
    await withLog(async (log, rows) => {
      await run(log, () => 1, 500, { intervalMs: 2_000, unreadIntervalMs: 4_000 });
      expect(rows.written()).toBeLessThanOrEqual(5 + 5);
    });
    await withLog(async (log, rows) => {
      await run(log, () => 0, 500, { intervalMs: 400, unreadIntervalMs: 60_000 });
      expect(rows.written()).toBeLessThanOrEqual(4);
    });
  });

  it("are few again when the readers have left", async () => {
    await withLog(async (log, rows) => {
      await run(log, (second) => (second < 2 ? 3 : 0), 600);
      // Two seconds with readers, ten without.
      expect(rows.written()).toBeLessThanOrEqual(12 + 5);
    });
  });

  it("follow each other without a gap, with changing readers", async () => {
    await withLog(async (log, rows) => {
      await run(log, (second) => second % 3, 300);
      let next = 0;
      for (const { seq_from, seq_to } of rows()) {
        expect(seq_from).toBe(next);
        next = seq_to + 1;
      }
      expect(next).toBe(309);
    });
  });

  it("lose at most four seconds of unread tokens when the process dies", async () => {
    await withLog(async (log, rows) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      for (let index = 0; index < 500; index += 1) {
        writer.event("response.output_text.delta", delta(index, "x"));
        writer.flush();
        await vi.advanceTimersByTimeAsync(20);
        const durable = (rows().at(-1)?.seq_to ?? -1) + 1;
        expect(index + 1 - durable).toBeLessThanOrEqual(4 * 50);
      }
    });
  });

  it("get pending events as soon as a reader comes", async () => {
    await withLog((log, rows) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      const say = (index: number) => {
        writer.event("response.output_text.delta", delta(index, "x"));
        writer.flush();
      };
      say(0);
      say(1);
      say(2);
      expect(rows().at(-1)?.seq_to).toBe(0);
      const leave = writer.attach();
      expect(rows().at(-1)?.seq_to).toBe(2);
      leave();
    });
  });

  it("are written at once when something other than a delta happens with a reader", async () => {
    await withLog((log, rows) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      writer.attach();
      for (let index = 0; index < 3; index += 1) {
        writer.event("response.output_item.added", JSON.stringify({ type: "x", sequence_number: index }));
        writer.flush();
        expect(rows().at(-1)?.seq_to).toBe(index);
      }
    });
  });
});

describe("a block larger than a row", () => {
  const texts = {
    "ASCII text": "x".repeat(2_500_000),
    "Chinese text": "多".repeat(900_000),
    emoji: `x${"🦜".repeat(600_000)}`,
    "a family of emoji": "👩‍👩‍👧".repeat(200_000),
    "lone surrogates": "\ud83e".repeat(300_000),
  };

  it.each(Object.entries(texts))("is split, and read unchanged: %s", async (_, text) => {
    await withLog((log, rows) => {
      const block = [delta(0, "before"), delta(1, text), delta(2, "after")];
      log.append("t", { from: 0, to: 2, lines: block });
      expect(rows().length).toBeGreaterThan(1);
      for (const { bytes } of rows()) expect(bytes).toBeLessThan(2_000_000);
      const found = log.next("t", -1);
      expect([found?.from, found?.to]).toEqual([0, 2]);
      expect(found?.events.length === 3 && found.events.every((event, index) => event === block[index])).toBe(true);
      expect(log.next("t", 0)?.events.every((event, index) => event === block[index + 1])).toBe(true);
      expect(log.next("t", 1)?.events).toEqual([delta(2, "after")]);
      expect(log.next("t", 2)).toBeUndefined();
    });
  });

  it("is all there or not at all when one of its rows cannot be written", async () => {
    await withLog((log, rows, sql) => {
      log.append("t", { from: 0, to: 0, lines: [delta(0, "x")] });
      sql.exec(
        "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.part = 1 BEGIN SELECT RAISE(ABORT, 'disk full'); END",
      );
      const large = { from: 1, to: 1, lines: [delta(1, "多".repeat(900_000))] };
      expect(() => log.append("t", large)).toThrow("disk full");
      expect(rows()).toHaveLength(1);
      expect(log.next("t", 0)).toBeUndefined();
      sql.exec("DROP TRIGGER full");
      log.append("t", large);
      expect(log.next("t", 0)?.events[0] === large.lines[0]).toBe(true);
    });
  });

  it("is also made by a writer, which holds at most 64 K back", async () => {
    await withLog((log, rows) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      writer.event("response.output_text.delta", delta(0, "x"));
      writer.flush();
      for (let index = 1; index <= 100; index += 1) {
        writer.event("response.output_text.delta", delta(index, "x".repeat(10_000)));
        writer.flush();
      }
      expect(rows.written()).toBeGreaterThanOrEqual(14);
      expect((rows().at(-1)?.seq_to ?? 0) >= 93).toBe(true);
      writer.stop();
    });
  });
});

describe("reading the log", () => {
  it("begins anywhere, also in the middle of a block", async () => {
    const all = events(30);
    await withLog((log) => {
      for (const [from, to] of [
        [0, 0],
        [1, 9],
        [10, 28],
        [29, 29],
      ] as const) {
        log.append("t", { from, to, lines: all.slice(from, to + 1) });
      }
      for (let after = -1; after < 30; after += 1) {
        const found: string[] = [];
        let at = after;
        for (let block = log.next("t", at); block; block = log.next("t", at)) {
          expect(block.from).toBe(at + 1);
          found.push(...block.events);
          at = block.to;
        }
        expect(found).toEqual(all.slice(after + 1));
      }
      expect(log.next("t", 1_000_000)).toBeUndefined();
    });
  });

  it("gives the same for any packing of the events", async () => {
    const texts = fc.array(fc.string({ unit: codePoint, maxLength: 20 }), { minLength: 1, maxLength: 40 });
    const property = fc.asyncProperty(texts, fc.array(fc.nat(10)), fc.nat(45), async (said, cuts, after) => {
      await withLog((log) => {
        const all = said.map((text, index) => delta(index, text));
        let from = 0;
        for (const size of [...cuts, all.length]) {
          const block = all.slice(from, from + size + 1);
          if (block.length === 0) break;
          log.append("t", { from, to: from + block.length - 1, lines: block });
          from += block.length;
        }
        expect([...log.all("t")]).toEqual(all);
        const rest = log.next("t", after - 1)?.events ?? [];
        expect(rest).toEqual(all.slice(after, after + rest.length));
        expect(rest.length > 0).toBe(after < all.length);
      });
    });
    await fc.assert(property, { numRuns: 15 });
  });

  it("of one turn sees nothing of another, and deletes nothing of it", async () => {
    await withLog((log) => {
      log.append("a", { from: 0, to: 1, lines: events(2, "a") });
      log.append("b", { from: 0, to: 2, lines: events(3, "b") });
      expect([...log.all("a")]).toEqual(events(2, "a"));
      log.delete("a");
      expect(log.has("a")).toBe(false);
      expect([...log.all("b")]).toEqual(events(3, "b"));
    });
  });

  it("makes no table", async () => {
    await withLog((log, _, sql) => {
      expect(log.has("t")).toBe(false);
      expect([...log.all("t")]).toEqual([]);
      log.delete("t");
      log.sweep();
      expect(sql.exec("SELECT 1 FROM sqlite_schema WHERE name = 'events'").toArray()).toEqual([]);
    });
  });
});

describe("a writer whose storage fails", () => {
  it("fails at the next flush, wakes no reader, and continues with its pending events", async () => {
    await withLog(async (log, _, sql) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      writer.attach();
      writer.event("response.created", delta(0, "x"));
      writer.flush();
      sql.exec("CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'disk full'); END");
      let woken = false;
      void writer.changed().then(() => {
        woken = true;
      });
      writer.event("response.in_progress", delta(1, "x"));
      expect(() => writer.flush()).toThrow("disk full");
      await Promise.resolve();
      expect(woken).toBe(false);
      expect(log.next("t", 0)).toBeUndefined();
      sql.exec("DROP TRIGGER full");
      writer.write();
      expect(log.next("t", 0)?.events).toEqual([delta(1, "x")]);
      await Promise.resolve();
      expect(woken).toBe(true);
    });
  });

  it("fails also after a delayed write", async () => {
    await withLog(async (log, _, sql) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      writer.attach();
      writer.event("response.output_text.delta", delta(0, "x"));
      writer.flush();
      sql.exec("CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'disk full'); END");
      writer.event("response.output_text.delta", delta(1, "x"));
      writer.flush();
      await new Promise((resolve) => setTimeout(resolve, 500));
      writer.event("response.output_text.delta", delta(2, "x"));
      expect(() => writer.flush()).toThrow("disk full");
    });
  });

  it("writes nothing more when it is stopped", async () => {
    await withLog((log) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      writer.attach();
      writer.stop();
      writer.event("response.created", delta(0, "x"));
      writer.flush();
      writer.write();
      expect(log.has("t")).toBe(false);
    });
  });
});

describe("records between the events", () => {
  const record = (...ids: number[]) => recordLine({ sampled: { ids } });

  it("are seen by no reader from any event on, and by a reader of the whole log", async () => {
    const blocks = [
      { from: 0, to: 0, lines: [delta(0, "x"), record(1)] },
      {
        from: 1,
        to: 4,
        lines: [record(2), delta(1, "["), delta(2, "[]"), record(3), record(4), delta(3, "x"), delta(4, "x")],
      },
      { from: 5, to: 5, lines: [record(5), record(6), delta(5, "x"), record(7)] },
      { from: 6, to: 7, lines: [delta(6, "x"), delta(7, "x"), record(8)] },
    ];
    const lines = blocks.flatMap((block) => block.lines);
    const events = lines.filter((line) => line.startsWith("{"));
    await withLog((log) => {
      for (const block of blocks) log.append("t", block);
      for (let after = -1; after < 8; after += 1) {
        expect(eventsAfter(log, after)).toEqual(events.slice(after + 1));
      }
      expect([...log.all("t")]).toEqual(lines);
    });
  });

  it("take no sequence number, with any writers and readers between them", async () => {
    const steps = fc.array(fc.constantFrom("event", "record", "flush", "reader", "write", "commit"), { maxLength: 60 });
    const property = fc.asyncProperty(steps, async (taken) => {
      await withLog((log, rows) => {
        const writer = new EventLogWriter(log, "t", 0, CONFIG);
        const said: string[] = [];
        let events = 0;
        for (const [index, step] of taken.entries()) {
          if (step === "event") {
            said.push(delta(events, "x"));
            writer.event("response.output_text.delta", delta(events++, "x"));
          } else if (step === "record") {
            said.push(record(index));
            writer.record({ sampled: { ids: [index] } });
          } else if (step === "flush") writer.flush();
          else if (step === "reader") writer.attach();
          else if (step === "commit") writer.commit();
          else writer.write();
        }
        writer.write();
        writer.stop();
        // Records after the last event may wait for the next event.
        const last = said.findLastIndex((line) => line.startsWith("{"));
        const kept = [...log.all("t")];
        expect(kept).toEqual(said.slice(0, kept.length));
        expect(kept.length).toBeGreaterThan(last);
        if (taken.at(-1) === "commit") expect(kept).toEqual(said);
        const found: string[] = [];
        for (let block = log.next("t", -1); block; block = log.next("t", block.to)) found.push(...block.events);
        const all = said.filter((line) => line.startsWith("{"));
        expect(found).toEqual(all);
        for (let after = 0; after < events; after += 1) {
          const next = log.next("t", after);
          if (after === events - 1) expect(next).toBeUndefined();
          else expect(next?.events).toEqual(all.slice(after + 1, (next?.to ?? 0) + 1));
        }
        if (events > 0) expect(Math.max(...rows().map((row) => row.seq_to))).toBe(events - 1);
        else expect(log.has("t")).toBe(false);
      });
    });
    await fc.assert(property, { numRuns: 25 });
  });

  it("wait for the next event if it comes soon, and are written with it", async () => {
    await withLog((log, rows, sql) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      writer.attach();
      writer.record({ sampled: { ids: [1] } });
      writer.write();
      expect(sql.exec("SELECT 1 FROM sqlite_schema WHERE name = 'events'").toArray()).toEqual([]);
      writer.event("response.output_item.added", delta(0, "x"));
      writer.record({ sampled: { ids: [2] } });
      writer.flush();
      expect([...log.all("t")]).toEqual([record(1), delta(0, "x"), record(2)]);
      writer.record({ sampled: { ids: [3] } });
      writer.write();
      expect(rows()).toHaveLength(1);
      writer.event("response.output_item.done", delta(1, "x"));
      writer.flush();
      expect([...log.all("t")]).toEqual([record(1), delta(0, "x"), record(2), record(3), delta(1, "x")]);
      expect(log.next("t", 0)).toEqual({ from: 1, to: 1, events: [delta(1, "x")] });
      writer.stop();
    });
  });

  it("may be larger than a row", async () => {
    await withLog((log, rows) => {
      const ids = Array.from({ length: 60_000 }, (_, index) => 100_000 + index);
      const lines = [record(...ids), delta(0, "x"), record(...ids), delta(1, "x")];
      log.append("t", { from: 0, to: 1, lines });
      expect(rows().length).toBeGreaterThan(1);
      expect([...log.all("t")]).toEqual(lines);
      expect(log.next("t", -1)).toEqual({ from: 0, to: 1, events: [delta(0, "x"), delta(1, "x")] });
      expect(log.next("t", 0)?.events).toEqual([delta(1, "x")]);
    });
  });
});

describe("records that cannot wait", () => {
  const record = (...ids: number[]) => recordLine({ sampled: { ids } });

  it("are written at once, in order, before the block of the next event", async () => {
    await withLog((log, rows) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      writer.attach();
      const said: string[] = [];
      const commit = (id: number) => {
        said.push(record(id));
        writer.record({ sampled: { ids: [id] } });
        writer.commit();
        expect([...log.all("t")]).toEqual(said);
      };
      const say = (sequence: number) => {
        said.push(delta(sequence, "x"));
        writer.event("response.output_item.added", delta(sequence, "x"));
      };
      for (let id = 0; id < 12; id += 1) commit(id);
      expect(log.has("t")).toBe(false);
      expect(log.next("t", -1)).toBeUndefined();
      say(0);
      writer.flush();
      expect(log.next("t", -1)).toEqual({ from: 0, to: 0, events: [delta(0, "x")] });
      commit(20);
      commit(21);
      expect(log.next("t", 0)).toBeUndefined();
      // An event that is pending goes with them.
      say(1);
      say(2);
      commit(22);
      commit(23);
      say(3);
      writer.write();
      const events = said.filter((line) => line.startsWith("{"));
      expect(log.next("t", -1)?.events).toEqual([events[0]]);
      expect(log.next("t", 0)).toEqual({ from: 1, to: 2, events: events.slice(1, 3) });
      expect(log.next("t", 1)).toEqual({ from: 2, to: 2, events: events.slice(2, 3) });
      expect(log.next("t", 2)).toEqual({ from: 3, to: 3, events: events.slice(3) });
      expect(log.next("t", 3)).toBeUndefined();
      expect([...log.all("t")]).toEqual(said);
      expect(readLoggedTurn(log.all("t"))).toMatchObject({ sequence: 4 });
      // Records with the same number differ by their part, and come before the block.
      expect(
        rows()
          .filter(({ seq_from }) => seq_from === 1)
          .map(({ part }) => Math.sign(part)),
      ).toEqual([-1, -1, 0]);
      writer.commit();
      expect([...log.all("t")]).toEqual(said);
      writer.stop();
    });
  });

  it("continue after a crash at the end of the last writer's", async () => {
    await withLog((log) => {
      for (let life = 0; life < 3; life += 1) {
        const writer = new EventLogWriter(log, "t", 0, CONFIG);
        writer.record({ sampled: { ids: [life, life] } });
        writer.commit();
        writer.record({ sampled: { ids: [life] } });
        writer.commit();
        writer.stop();
      }
      expect(readLoggedTurn(log.all("t"))).toMatchObject({
        sequence: 0,
        round: { sampled: { ids: [0, 0, 0, 1, 1, 1, 2, 2, 2] } },
      });
    });
  });

  it("may be larger than a row, and are all there or not at all", async () => {
    await withLog((log, rows, sql) => {
      const ids = Array.from({ length: 60_000 }, (_, index) => 9e20 - index * 1_000_000);
      log.append("t", { from: 0, to: 0, lines: [delta(0, "x")] });
      log.appendRecords("t", 1, [record(1), record(...ids)]);
      const before = rows();
      expect(before.length).toBeGreaterThan(3);
      sql.exec("CREATE TABLE broken (part INTEGER)");
      const last = before.filter(({ part }) => part < 0).at(-1)?.part ?? 0;
      sql.exec(
        `CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.part = ${last + 2} BEGIN SELECT RAISE(ABORT, 'disk full'); END`,
      );
      expect(() => log.appendRecords("t", 1, [record(...ids)])).toThrow("disk full");
      expect(rows()).toEqual(before);
      sql.exec("DROP TRIGGER full");
      log.appendRecords("t", 1, [record(2)]);
      // A block that cannot be written takes no record with it.
      sql.exec(
        "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.part = 1 BEGIN SELECT RAISE(ABORT, 'disk full'); END",
      );
      expect(() => log.append("t", { from: 1, to: 1, lines: [delta(1, "x".repeat(700_000))] })).toThrow("disk full");
      sql.exec("DROP TRIGGER full");
      log.append("t", { from: 1, to: 1, lines: [delta(1, "y")] });
      expect([...log.all("t")]).toEqual([delta(0, "x"), record(1), record(...ids), record(2), delta(1, "y")]);
      expect(log.next("t", 0)).toEqual({ from: 1, to: 1, events: [delta(1, "y")] });
    });
  });

  it("fail at once if they cannot be written", async () => {
    await withLog((log, _, sql) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      writer.record({ sampled: { ids: [1] } });
      writer.commit();
      sql.exec("CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'disk full'); END");
      writer.record({ dispatched: "mcp_1" });
      expect(() => writer.commit()).toThrow("disk full");
      sql.exec("DROP TRIGGER full");
      writer.commit();
      expect([...log.all("t")]).toEqual([record(1), recordLine({ dispatched: "mcp_1" })]);
      writer.stop();
      writer.record({ dispatched: "mcp_2" });
      writer.commit();
      expect([...log.all("t")]).toHaveLength(2);
    });
  });
});

describe("records without an event for long", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it.each([0, 1])("are written every four seconds, in few rows (readers: %i)", async (readers) => {
    await withLog(async (log, rows) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      for (let index = 0; index < readers; index += 1) writer.attach();
      for (let id = 0; id < 1_000; id += 1) {
        writer.record({ sampled: { ids: [id] } });
        writer.flush();
        await vi.advanceTimersByTimeAsync(20);
        const { sampled } = readLoggedTurn(log.all("t")).round;
        const kept = sampled && "ids" in sampled ? sampled.ids.length : 0;
        expect(id + 1 - kept).toBeLessThanOrEqual(4 * 50);
      }
      expect(rows().length).toBeLessThanOrEqual(7);
      expect(log.has("t")).toBe(false);
      writer.stop();
    });
  });

  it("are written also without later events, and delay no event", async () => {
    await withLog(async (log) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      writer.event("response.created", delta(0, "x"));
      writer.flush();
      writer.attach();
      writer.record({ sampled: { ids: [1] } });
      writer.flush();
      writer.event("response.output_text.delta", delta(1, "x"));
      writer.flush();
      await vi.advanceTimersByTimeAsync(400);
      expect(log.next("t", 0)?.events).toEqual([delta(1, "x")]);
      writer.record({ sampled: { ids: [2] } });
      writer.flush();
      await vi.advanceTimersByTimeAsync(3_000);
      expect(readLoggedTurn(log.all("t")).round.sampled).toEqual({ ids: [1] });
      await vi.advanceTimersByTimeAsync(1_000);
      expect(readLoggedTurn(log.all("t")).round.sampled).toEqual({ ids: [1, 2] });
      writer.stop();
    });
  });
});

describe("sealed blocks", () => {
  const record = (...ids: number[]) => recordLine({ sampled: { ids } });

  it("have all written events, for any length, any deaths, and with any records", async () => {
    const steps = fc.array(fc.constantFrom("event", "long", "longer", "record", "write", "commit", "crash"), {
      minLength: 5,
      maxLength: 40,
    });
    const property = fc.asyncProperty(steps, async (taken) => {
      await withLog((log, _, sql, kept) => {
        log.append("other", { from: 0, to: 0, lines: events(1) });
        let writer = new EventLogWriter(log, "t", 0, CONFIG);
        let said: string[] = [];
        let count = 0;
        const say = (text: string) => {
          said.push(delta(count, text));
          writer.event("response.output_text.delta", delta(count++, text));
        };
        for (const [index, step] of taken.entries()) {
          if (step === "event") say("x");
          else if (step === "long") say(`${index}`.repeat(40_000));
          else if (step === "longer") say(`${index}`.repeat(150_000));
          else if (step === "commit") writer.commit();
          else if (step === "write") writer.write();
          else if (step === "crash") {
            writer.stop();
            said = [...log.all("t")];
            count = said.filter((line) => line.startsWith("{")).length;
            writer = new EventLogWriter(log, "t", count, CONFIG);
          } else {
            said.push(record(index));
            writer.record({ sampled: { ids: [index] } });
          }
          // Unwritten events are at the end.
          const all = [...log.all("t")];
          expect(all.length <= said.length && all.every((line, at) => line === said[at])).toBe(true);
        }
        say("the end");
        const failure = { status: 500, message: "No.", type: "server_error", param: null, code: "x" } as const;
        writer.record({ failure });
        const cell = writer.end();
        if (cell !== null) kept.log = fromCell(typeof cell === "string" ? cell : new Uint8Array(cell).buffer);
        expect(kept.log ?? "").not.toContain("sampled");
        const expected = said.filter((line) => line.startsWith("{"));
        for (const after of [-1, 0, count >> 1, count - 2]) {
          const found = eventsAfter(log, after);
          expect(
            found.length === count - after - 1 && found.every((line, at) => line === expected[at + after + 1]),
          ).toBe(true);
        }
        expect(log.next("t", count - 1)).toBeUndefined();
        expect(log.failure("t")).toEqual(failure);
        // Nothing is left that no reader needs.
        if (cell !== null)
          expect(sql.exec("SELECT 1 FROM events WHERE turn = 't' AND part < 1000000 AND part >= 0").toArray()).toEqual(
            [],
          );
      });
    });
    await fc.assert(property, { numRuns: 20 });
  });

  it("take a twentieth of a long log, and leave a short one to its turn's row", async () => {
    const say = (writer: EventLogWriter, tokens: number) => {
      for (let index = 0; index < tokens; index += 1) {
        const item = { item_id: `msg_${"a".repeat(32)}o0`, output_index: 0, content_index: 0, logprobs: [] };
        const event = {
          type: "response.output_text.delta",
          ...item,
          sequence_number: index,
          delta: ` w${(index * 7_919) % 1_000}`,
        };
        writer.event("response.output_text.delta", JSON.stringify(event));
        if (index % 20 === 0) writer.write();
      }
    };
    await withLog((log, rows) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      say(writer, 20_000);
      const raw = 20_000 * 180;
      expect(rows().filter(({ part }) => part >= 1_000_000).length).toBeLessThan(raw / 150_000);
      // During the run, only a small part is not sealed.
      expect(
        rows()
          .filter(({ part }) => part === 0)
          .reduce((sum, { bytes }) => sum + bytes, 0),
      ).toBeLessThan(200_000);
      const cell = writer.end();
      expect(cell instanceof Uint8Array && cell.length).toBeLessThan(20_000);
      expect(rows().every(({ part }) => part === 1_000_000)).toBe(true);
      expect(rows().reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThan(raw / 20);
    });
    await withLog((log, rows) => {
      const writer = new EventLogWriter(log, "t", 0, CONFIG);
      say(writer, 500);
      expect(writer.end()).toBeInstanceOf(Uint8Array);
      expect(rows()).toEqual([]);
    });
  });

  it("replace blocks as a whole or not at all", async () => {
    await withLog((log, rows, sql) => {
      const all = events(30, "y".repeat(1_000));
      for (let at = 0; at < 30; at += 10) log.append("t", { from: at, to: at + 9, lines: all.slice(at, at + 10) });
      sql.exec("CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'disk full'); END");
      expect(() => log.seal("t")).toThrow("disk full");
      expect(rows()).toHaveLength(3);
      sql.exec("DROP TRIGGER full");
      log.seal("t");
      expect(rows()).toHaveLength(1);
      log.seal("t");
      expect(eventsAfter(log, -1)).toEqual(all);
    });
  });
});

describe("a turn read from its log", () => {
  const stored = (record: object) => JSON.stringify([record]);
  const answering = (calls: PendingCall[], again: object[] = []) => ({
    answering: {
      replays: [{ item: "rs", messages: [{ role: "assistant" }] }],
      trailing: [{ role: "assistant" }],
      usage: null,
      calls,
      again,
    },
  });
  const call = (item: string): PendingCall => ({ item, tool: { kind: "python" }, name: "python", arguments: "1" });

  it("has the last round's sampled tokens, and the results of the earlier ones", () => {
    const lines = [
      stored({ sampled: { ids: [1, 2] } }),
      delta(0, "x"),
      stored({ sampled: { ids: [3] } }),
      stored(answering([], [{ role: "tool" }])),
      stored({ round: { trailing: [{ role: "tool" }] } }),
      stored({ sampled: { ids: [4] } }),
      delta(1, "y"),
      stored({ sampled: { ids: [5, 6] } }),
      delta(2, "z"),
    ];
    const left = {
      replays: [{ item: "rs", messages: [{ role: "assistant" }] }],
      trailing: [{ role: "tool" }],
      rounds: 1,
      askedAgain: 1,
      answering: undefined,
    };
    expect(readLoggedTurn(lines)).toMatchObject({
      ...left,
      sequence: 3,
      deltas: { all: 3 },
      round: { firstItem: 0, sampled: { ids: [4, 5, 6] } },
    });
    expect(readLoggedTurn(lines.slice(0, 5))).toMatchObject({
      ...left,
      sequence: 1,
      round: { firstItem: 0, sampled: undefined },
    });
    const texts = ["<|chan", "nel|>"].map((text) => stored({ sampled: { text } }));
    expect(readLoggedTurn(texts)).toMatchObject({
      sequence: 0,
      rounds: 0,
      round: { sampled: { text: "<|channel|>" } },
    });
  });

  it("has the progress of each call", () => {
    const exchange = { name: "python", arguments: "1", output: "2", step: "s" };
    const lines = [
      stored({ called: call("a") }),
      stored({ called: call("b") }),
      stored({ called: call("c") }),
      stored(answering([call("a"), call("b"), call("c")])),
      stored({ dispatched: "a" }),
      stored({ dispatched: "b" }),
      stored({ answered: { item: "a", exchange, messages: [{ role: "tool" }] } }),
      stored({ round: { trailing: [] } }),
    ];
    expect(readLoggedTurn(lines.slice(0, 2))).toMatchObject({
      round: { called: [call("a"), call("b")] },
      answering: undefined,
    });
    const turn = readLoggedTurn(lines.slice(0, 7));
    expect(turn).toMatchObject({ round: { called: [], sampled: undefined }, rounds: 0 });
    const calls = [call("a"), call("b"), call("c")];
    expect(turn.answering).toMatchObject({ calls, answered: new Set(["a"]), dispatched: ["a", "b"] });
    expect(turn.replays.at(-1)).toEqual({ item: "a", messages: [{ role: "tool" }], exchange });
    expect(readLoggedTurn(lines)).toMatchObject({
      round: { called: [] },
      answering: undefined,
      rounds: 1,
      askedAgain: 0,
    });
  });

  const added = (item: object) => ({ type: "response.output_item.added", output_index: 0, item });

  it("has the arguments of an unfinished call", () => {
    const item = { id: "fc", type: "function_call", status: "in_progress", call_id: "c", name: "f", arguments: "" };
    const log = [
      added(item),
      ...['{"ci', 'ty"'].map((part) => ({
        type: "response.function_call_arguments.delta",
        item_id: "fc",
        output_index: 0,
        delta: part,
      })),
    ];
    const turn = readLoggedTurn(log.map((event, index) => JSON.stringify({ ...event, sequence_number: index })));
    expect(turn.output).toEqual([{ ...item, arguments: '{"city"' }]);
    expect(turn).toMatchObject({ sequence: 3, deltas: { all: 2 }, started: false });
  });
});
