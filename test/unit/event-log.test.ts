import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Engine, ModelDelta } from "../../src/engine/engine.ts";
import { newTurnAddress } from "../../src/protocol/ids.ts";
import { EventLogStore, EventLogWriter } from "../../src/store/event-log.ts";
import { Tables } from "../../src/store/tables.ts";
import { readLoggedTurn } from "../../src/turn/logged-turn.ts";
import { Turn } from "../../src/turn/turn.ts";

type Row = { seq_from: number; seq_to: number; part: number; bytes: number };

/** An event log in an object of its own. */
function withLog<T>(use: (log: EventLogStore, rows: () => Row[], sql: SqlStorage) => T | Promise<T>): Promise<T> {
  const stub = env.HOME.getByName(`tenant:${newTurnAddress().home}`);
  return runInDurableObject(stub, (_, { storage: { sql } }) => {
    const rows = () =>
      sql
        .exec<Row>(
          "SELECT seq_from, seq_to, part, octet_length(body) AS bytes FROM events ORDER BY turn, seq_from, part",
        )
        .toArray();
    return use(new EventLogStore(sql, new Tables(sql)), rows, sql);
  });
}

const delta = (sequence: number, text: string) =>
  JSON.stringify({ type: "response.output_text.delta", sequence_number: sequence, delta: text });

const events = (count: number, text = "x") => Array.from({ length: count }, (_, index) => delta(index, text));

describe("the rows of a run", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** A model that says so many tokens, one at a time. */
  function talker(tokens: number, perSecond: number): Engine {
    async function* deltas(): AsyncGenerator<ModelDelta[]> {
      for (let index = 0; index < tokens; index += 1) {
        await new Promise((resolve) => setTimeout(resolve, 1_000 / perSecond));
        yield [{ kind: "text", text: ` token${index}` }];
      }
      yield [{ kind: "finish", reason: "stop" }];
    }
    return {
      generate: async () => deltas(),
      continuation: () => undefined,
      measure: async () => ({ tokens: 1, contextWindow: 100_000 }),
    };
  }

  /** Takes a whole run to its log, as the run host does. `readers` tells for each second how many there are. */
  async function run(log: EventLogStore, readers: (second: number) => number, tokens = 1000): Promise<void> {
    const address = newTurnAddress();
    const writer = new EventLogWriter(log, address.turn, 0);
    const turn = new Turn(
      {
        engine: talker(tokens, 50),
        request: { background: true, model: "m" },
        address,
        model: { name: "m", upstream: "m" },
        history: [],
        input: [],
        cacheSalt: "",
        createdAt: Date.now(),
        signal: new AbortController().signal,
        clock: Date.now,
        maxRetries: 0,
      },
      writer,
    );
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
    expect([...log.all(address.turn)]).toHaveLength(3 + 2 + tokens + 4);
    expect(readLoggedTurn(log.all(address.turn))).toMatchObject({ sequence: tokens + 9, deltas: tokens });
  }

  it("are at most 60 for 1,000 tokens at 50 a second while somebody reads", async () => {
    await withLog(async (log, rows) => {
      await run(log, () => 1);
      expect(rows().length).toBeLessThanOrEqual(60);
      // And still often enough to be followed.
      expect(rows().length).toBeGreaterThan(40);
    });
  });

  it("are no more for many readers", async () => {
    await withLog(async (log, rows) => {
      await run(log, () => 25, 250);
      expect(rows().length).toBeLessThanOrEqual(25);
    });
  });

  it("are at most 10 while nobody reads", async () => {
    await withLog(async (log, rows) => {
      await run(log, () => 0);
      expect(rows().length).toBeLessThanOrEqual(10);
    });
  });

  it("are few again when the readers have left", async () => {
    await withLog(async (log, rows) => {
      await run(log, (second) => (second < 2 ? 3 : 0), 600);
      // Two seconds with readers, ten without.
      expect(rows().length).toBeLessThanOrEqual(12 + 5);
    });
  });

  it("follow on each other without a gap, whoever comes and goes", async () => {
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

  it("lose at most four seconds of tokens that nobody has seen when the process dies", async () => {
    await withLog(async (log, rows) => {
      const writer = new EventLogWriter(log, "t", 0);
      for (let index = 0; index < 500; index += 1) {
        writer.event("response.output_text.delta", delta(index, "x"));
        writer.flush();
        await vi.advanceTimersByTimeAsync(20);
        const durable = (rows().at(-1)?.seq_to ?? -1) + 1;
        expect(index + 1 - durable).toBeLessThanOrEqual(4 * 50);
      }
    });
  });

  it("have what is pending as soon as somebody comes to read", async () => {
    await withLog((log, rows) => {
      const writer = new EventLogWriter(log, "t", 0);
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

  it("are written at once when something other than a delta happens while somebody reads", async () => {
    await withLog((log, rows) => {
      const writer = new EventLogWriter(log, "t", 0);
      writer.attach();
      for (let index = 0; index < 3; index += 1) {
        writer.event("response.output_item.added", JSON.stringify({ type: "x", sequence_number: index }));
        writer.flush();
        expect(rows().at(-1)?.seq_to).toBe(index);
      }
    });
  });
});

describe("a block larger than a row may be", () => {
  const texts = {
    "ASCII text": "x".repeat(2_500_000),
    "Chinese text": "多".repeat(900_000),
    emoji: `x${"🦜".repeat(600_000)}`,
    "a family of emoji": "👩‍👩‍👧".repeat(200_000),
    "lone surrogates": "\ud83e".repeat(300_000),
  };

  it.each(Object.entries(texts))("is split, and read back as it was: %s", async (_, text) => {
    await withLog((log, rows) => {
      const block = [delta(0, "before"), delta(1, text), delta(2, "after")];
      log.append("t", { from: 0, to: 2, events: block });
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
      log.append("t", { from: 0, to: 0, events: [delta(0, "x")] });
      sql.exec(
        "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.part = 1 BEGIN SELECT RAISE(ABORT, 'disk full'); END",
      );
      const large = { from: 1, to: 1, events: [delta(1, "多".repeat(900_000))] };
      expect(() => log.append("t", large)).toThrow("disk full");
      expect(rows()).toHaveLength(1);
      expect(log.next("t", 0)).toBeUndefined();
      sql.exec("DROP TRIGGER full");
      log.append("t", large);
      expect(log.next("t", 0)?.events[0] === large.events[0]).toBe(true);
    });
  });

  it("comes also from a writer, which holds no more than 64 K back", async () => {
    await withLog((log, rows) => {
      const writer = new EventLogWriter(log, "t", 0);
      writer.event("response.output_text.delta", delta(0, "x"));
      writer.flush();
      for (let index = 1; index <= 100; index += 1) {
        writer.event("response.output_text.delta", delta(index, "x".repeat(10_000)));
        writer.flush();
      }
      expect(rows().length).toBeGreaterThanOrEqual(14);
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
        log.append("t", { from, to, events: all.slice(from, to + 1) });
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

  it("gives the same however the events were packed", async () => {
    const texts = fc.array(fc.string({ unit: "binary", maxLength: 20 }), { minLength: 1, maxLength: 40 });
    const property = fc.asyncProperty(texts, fc.array(fc.nat(10)), fc.nat(45), async (said, cuts, after) => {
      await withLog((log) => {
        const all = said.map((text, index) => delta(index, text));
        let from = 0;
        for (const size of [...cuts, all.length]) {
          const block = all.slice(from, from + size + 1);
          if (block.length === 0) break;
          log.append("t", { from, to: from + block.length - 1, events: block });
          from += block.length;
        }
        expect([...log.all("t")]).toEqual(all);
        const rest = log.next("t", after - 1)?.events ?? [];
        expect(rest).toEqual(all.slice(after, after + rest.length));
        expect(rest.length > 0).toBe(after < all.length);
      });
    });
    await fc.assert(property, { numRuns: 30 });
  });

  it("of one turn sees nothing of another, and deletes nothing of it", async () => {
    await withLog((log) => {
      log.append("a", { from: 0, to: 1, events: events(2, "a") });
      log.append("b", { from: 0, to: 2, events: events(3, "b") });
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
  it("says so at the next flush, wakes nobody, and goes on with what it kept", async () => {
    await withLog(async (log, _, sql) => {
      const writer = new EventLogWriter(log, "t", 0);
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

  it("says it also when the write was a late one", async () => {
    await withLog(async (log, _, sql) => {
      const writer = new EventLogWriter(log, "t", 0);
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
      const writer = new EventLogWriter(log, "t", 0);
      writer.attach();
      writer.stop();
      writer.event("response.created", delta(0, "x"));
      writer.flush();
      writer.write();
      expect(log.has("t")).toBe(false);
    });
  });
});

describe("a turn read from its log", () => {
  const added = (item: object) => ({ type: "response.output_item.added", output_index: 0, item });

  it("has the arguments of an unfinished call", () => {
    const item = { id: "fc", type: "function_call", status: "in_progress", call_id: "c", name: "f", arguments: "" };
    const log = [
      added(item),
      ...['{"ci', 'ty"'].map((part) => ({
        type: "response.function_call_arguments.delta",
        output_index: 0,
        delta: part,
      })),
    ];
    const turn = readLoggedTurn(log.map((event, index) => JSON.stringify({ ...event, sequence_number: index })));
    expect(turn.output).toEqual([{ ...item, arguments: '{"city"' }]);
    expect(turn).toMatchObject({ sequence: 3, deltas: 2, started: false });
  });
});
