import { abortAllDurableObjects, evictDurableObject, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { conversationId, newTurnAddress, responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { type InputItem, type Item, itemId } from "@responses-edge/responses-api/items/registry";
import { afterEach, describe, expect, it, vi } from "vitest";
import { receiveHistory } from "../../src/store/home/conversation-lock.ts";
import type { History } from "../../src/store/home/history.ts";
import type { Home } from "../../src/store/home/home.ts";
import { HomeClient } from "../../src/store/home/home-client.ts";
import { ItemStore } from "../../src/store/home/item-store.ts";
import type { TurnToSettle } from "../../src/store/home/settlement.ts";
import { Tables } from "../../src/store/home/tables.ts";
import { TurnStore } from "../../src/store/home/turn-store.ts";
import { withObjects } from "../../src/store/objects/objects.ts";

const DAY_MS = 86_400_000;

type Stub = DurableObjectStub<Home>;

/** A new home. */
function newHome(): Stub {
  return env.HOME.getByName(`tenant:${newTurnAddress().home}`);
}

function message(id: string, text: string) {
  return { type: "message", id, role: "user", status: "completed", content: [{ type: "input_text", text }] };
}

/** A turn named `turn`, with this text as its input and its answer. */
function turnOf(turn: string, parent: string | null = null, text = turn): TurnToSettle {
  return {
    turn,
    parent,
    createdAt: Date.now(),
    lease: null,
    input: JSON.stringify([message(`msg_${turn}_in`, text)]),
    output: JSON.stringify([message(`msg_${turn}_out`, text)]),
    messages: JSON.stringify([{ item: `msg_${turn}_out`, messages: [{ role: "assistant", content: text }] }]),
    response: JSON.stringify({
      id: responseId({ home: "h".repeat(22), turn: turn.padEnd(10, "0") }),
      status: "completed",
    }),
  };
}

async function settle(stub: Stub, ...turns: TurnToSettle[]): Promise<void> {
  for (const turn of turns) await stub.settle(turn);
}

async function historyIds(stub: Stub, turn: string): Promise<string[] | undefined> {
  const snapshot = await stub.snapshot(turn, []);
  return snapshot.found ? (JSON.parse(snapshot.history.items) as { id: string }[]).map(({ id }) => id) : undefined;
}

/** Makes turns look as if they had been created that long ago. */
function age(stub: Stub, days: number, ...turns: string[]): Promise<void> {
  return runInDurableObject(stub, (_, state) => {
    for (const turn of turns) {
      state.storage.sql.exec("UPDATE turns SET created_at = created_at - ? WHERE turn = ?", days * DAY_MS, turn);
    }
  });
}

function turnsIn(stub: Stub): Promise<string[]> {
  return runInDurableObject(stub, (_, state) =>
    state.storage.sql
      .exec<{ turn: string }>("SELECT DISTINCT turn FROM turns ORDER BY turn")
      .toArray()
      .map(({ turn }) => turn),
  );
}

function storageOf(stub: Stub): Promise<{ tables: string[]; alarm: number | null }> {
  return runInDurableObject(stub, async (_, state) => ({
    tables: state.storage.sql
      .exec<{ name: string }>("SELECT name FROM sqlite_schema WHERE name NOT LIKE '\\_cf\\_%' ESCAPE '\\'")
      .toArray()
      .map(({ name }) => name),
    alarm: await state.storage.getAlarm(),
  }));
}

const empty = { tables: [], alarm: null };

/** Runs `use` on the object, and counts the billed writes: the rows of SQL statements, and the alarms (a row each). */
function writesOf(stub: Stub, use: (home: Home) => Promise<unknown>): Promise<{ rows: number; alarms: number }> {
  return runInDurableObject(stub, async (home: Home, { storage }) => {
    const { sql } = storage;
    const exec = sql.exec.bind(sql);
    const setAlarm = storage.setAlarm.bind(storage);
    const cursors: { rowsWritten: number }[] = [];
    let alarms = 0;
    sql.exec = ((...given: Parameters<typeof exec>) => {
      const cursor = exec(...given);
      cursors.push(cursor);
      return cursor;
    }) as typeof exec;
    storage.setAlarm = (...given) => {
      alarms += 1;
      return setAlarm(...given);
    };
    try {
      await use(home);
    } finally {
      sql.exec = exec;
      storage.setAlarm = setAlarm;
    }
    return { rows: cursors.reduce((sum, cursor) => sum + cursor.rowsWritten, 0), alarms };
  });
}

describe("the rows that a settled turn writes", () => {
  it("are three for the first one: its own, and the two that SQLite writes for a table; and its home's alarm", async () => {
    const stub = newHome();
    expect(await writesOf(stub, (home) => home.settle(turnOf("a")))).toEqual({ rows: 3, alarms: 1 });
    expect((await storageOf(stub)).tables).toEqual(["turns"]);
  });

  it("are one for every later one, and no alarm", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"));
    expect(await writesOf(stub, (home) => home.settle(turnOf("b", "a")))).toEqual({ rows: 1, alarms: 0 });
    expect(await writesOf(stub, (home) => home.settle(turnOf("c", "a")))).toEqual({ rows: 1, alarms: 0 });
  });

  it("are not more where other objects are told of it, and one alarm does for all turns of some seconds", async () => {
    const stub = newHome();
    const counted = (turn: string, parent?: string) => ({ ...turnOf(turn, parent), owner: "key" });
    expect(await writesOf(stub, (home) => home.settle(counted("a")))).toEqual({ rows: 3, alarms: 1 });
    expect(await writesOf(stub, (home) => home.settle(counted("b", "a")))).toEqual({ rows: 1, alarms: 0 });
    expect(await writesOf(stub, (home) => home.alarm())).toEqual({ rows: 0, alarms: 1 });
    expect((await storageOf(stub)).tables).toEqual(["turns"]);
  });

  it("are one for a later one also when the object was evicted in between", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"));
    await evictDurableObject(stub);
    expect(await writesOf(stub, (home) => home.settle(turnOf("b", "a")))).toEqual({ rows: 1, alarms: 0 });
  });

  it("are none for reading", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b", "a"));
    const read = async (home: Home) => {
      home.snapshot("b", [{ id: "msg_a_in", turn: "a" }]);
      home.retrieve("a");
      home.inputItems("a", { limit: 20, order: "desc" });
    };
    expect(await writesOf(stub, read)).toEqual({ rows: 0, alarms: 0 });
  });
});

describe("a home that learns of its first turn before the turn ends", () => {
  it("has only its alarm by then: the end writes the turn", async () => {
    const stub = newHome();
    await stub.awaitTurn(Date.now());
    const { tables, alarm } = await storageOf(stub);
    expect(tables).toEqual([]);
    expect(alarm).not.toBeNull();
    expect(await writesOf(stub, (home) => home.settle(turnOf("first")))).toEqual({ rows: 3, alarms: 0 });
  });

  it("gives its storage back when that turn never comes", async () => {
    const stub = newHome();
    await stub.awaitTurn(Date.now());
    expect(await runDurableObjectAlarm(stub)).toBe(true);
    expect(await storageOf(stub)).toEqual(empty);
  });
});

describe("settling", () => {
  it("the same turn twice, as after a lost answer, stores it once", async () => {
    const stub = newHome();
    const turn = turnOf("a", null, "x".repeat(500_000));
    await settle(stub, turn, turn);
    expect(await stub.retrieve("a")).toEqual({ head: turn.response, output: turn.output, keptTiming: null });
  });

  it("many turns at once stores all of them", async () => {
    const stub = newHome();
    const names = Array.from({ length: 20 }, (_, index) => `t${index + 10}`);
    await Promise.all(names.map((name) => stub.settle(turnOf(name))));
    expect(await turnsIn(stub)).toEqual(names);
  });
});

describe("an empty object", () => {
  it("finds nothing, and gets no tables and no alarm", async () => {
    const stub = newHome();
    expect(await stub.snapshot("a", [])).toEqual({ found: false, missing: "previous" });
    expect(await stub.snapshot(null, [{ id: "msg_a_in", turn: "a" }])).toEqual({
      found: false,
      missing: "item",
      id: "msg_a_in",
    });
    expect(await stub.retrieve("a")).toBeNull();
    expect(await stub.inputItems("a", { limit: 20, order: "desc" })).toBeNull();
    expect(await stub.delete("a")).toBe(false);
    expect(await storageOf(stub)).toEqual(empty);
  });

  it("has an empty history for a turn that continues nothing", async () => {
    expect(await newHome().snapshot(null, [])).toEqual({
      found: true,
      history: { items: "[]", messages: "[]" },
      references: {},
    });
  });
});

describe("a refusal", () => {
  it("leaves neither tables nor an alarm in an empty object", async () => {
    const address = newTurnAddress();
    const stub = env.HOME.getByName(`tenant:${address.home}`);
    const output = { type: "function_call_output", id: "fco_1", call_id: "call_1", output: "Sunny" };
    const spec = { ...address, parent: null, createdAt: Date.now(), input: [output], inConversation: false };
    const run = {
      ...spec,
      request: { background: true, model: "m" },
      model: { name: "m", upstream: "m", engine: "chat" },
      cacheSalt: "salt",
      affinity: { isRooted: true },
    };
    expect(await stub.startRun(JSON.stringify(run), "ticket", 0)).toMatchObject({ ok: false, error: { status: 400 } });
    const missing = {
      ...run,
      parent: "0".repeat(10),
      input: [],
      request: { ...run.request, previous_response_id: "r" },
    };
    expect(await stub.startRun(JSON.stringify(missing), "ticket", 0)).toMatchObject({ ok: false });
    expect(await storageOf(stub)).toEqual(empty);
  });

  it("leaves nothing under its idempotency key", async () => {
    const stub = newHome();
    expect(await stub.claim("print", "home", "turn")).toEqual({ kind: "claimed" });
    await stub.unclaim("print", "turn");
    expect(await storageOf(stub)).toEqual(empty);
  });
});

describe("an idempotency key", () => {
  it("whose turn has begun belongs to it, also after refusals of the same request", async () => {
    const stub = newHome();
    await stub.claim("print", "home", "turn");
    expect(await stub.claim("print", "home", "other")).toEqual({
      kind: "known",
      home: "home",
      turn: "turn",
      begun: false,
    });
    await stub.unclaim("print", "turn");
    await stub.begun("print", "home", "turn");
    await stub.unclaim("print", "turn");
    expect(await stub.claim("print", "home", "other")).toEqual({
      kind: "known",
      home: "home",
      turn: "turn",
      begun: true,
    });
    expect((await storageOf(stub)).alarm).not.toBeNull();
  });
});

describe("deleting a response that is its home's last", () => {
  it.each([2, 5])("by %i requests at once is done by one of them, and leaves nothing", async (count) => {
    const stub = newHome();
    await settle(stub, turnOf("a"));
    // The calls run within the object, without others between them.
    const deleted = await runInDurableObject(stub, (home: Home) =>
      Promise.all(Array.from({ length: count }, () => home.delete("a"))),
    );
    expect(deleted.filter(Boolean)).toHaveLength(1);
    expect(await storageOf(stub)).toEqual(empty);
  });

  it("beside other requests fails none of them", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"));
    const refused = await runInDurableObject(stub, async (home: Home) => {
      const asked = [
        () => home.delete("a"),
        () => home.retrieve("a"),
        () => home.delete("a"),
        () => home.snapshot("a", []),
        () => home.inputItems("a", { limit: 1, order: "asc" }),
        () => home.finished("a"),
        () => home.settle(turnOf("b")),
        () => home.delete("a"),
      ];
      const outcomes = await Promise.allSettled(asked.map(async (ask) => ask()));
      return outcomes.filter(({ status }) => status === "rejected");
    });
    expect(refused).toEqual([]);
    // The turn that was stored meanwhile exists, and so does its alarm.
    expect(await turnsIn(stub)).toEqual(["b"]);
    expect((await storageOf(stub)).alarm).not.toBeNull();
  });
});

describe("a snapshot", () => {
  it("has the items of the chain, oldest first, and of no other branch", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b", "a"), turnOf("c", "b"), turnOf("d", "b"), turnOf("e", "a"));
    expect(await historyIds(stub, "d")).toEqual(
      ["a", "b", "d"].flatMap((turn) => [`msg_${turn}_in`, `msg_${turn}_out`]),
    );
    expect(await historyIds(stub, "e")).toEqual(["a", "e"].flatMap((turn) => [`msg_${turn}_in`, `msg_${turn}_out`]));
  });

  it("leaves out nothing when a turn has no input or no output", async () => {
    const stub = newHome();
    await settle(stub, { ...turnOf("a"), output: "[]" }, { ...turnOf("b", "a"), input: "[]" });
    expect(await historyIds(stub, "b")).toEqual(["msg_a_in", "msg_b_out"]);
  });

  it("has the referenced items, anywhere in their turn", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b", "a"));
    const keys = [
      { id: "msg_b_out", turn: "b" },
      { id: "msg_a_in", turn: "a" },
    ];
    const snapshot = await stub.snapshot(null, keys);
    if (!snapshot.found) throw new Error("Not found.");
    expect(snapshot.history.items).toBe("[]");
    expect(JSON.parse(snapshot.references.msg_b_out ?? "")).toEqual(message("msg_b_out", "b"));
    expect(JSON.parse(snapshot.references.msg_a_in ?? "")).toEqual(message("msg_a_in", "a"));
  });

  it("has no item under the id of another turn", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b", "a"));
    expect(await stub.snapshot(null, [{ id: "msg_a_in", turn: "b" }])).toMatchObject({ missing: "item" });
  });

  it("refuses a history that exceeds a message between objects", async () => {
    const stub = newHome();
    const text = "x".repeat(3 * 1024 * 1024);
    await settle(stub, turnOf("a", null, text), turnOf("b", "a", text));
    expect(await stub.snapshot("a", [])).toMatchObject({ found: true });
    await settle(stub, turnOf("c", "b", text));
    expect(await stub.snapshot("c", [])).toEqual({ found: false, missing: "room" });
  });
});

describe("deleting", () => {
  it("makes the chain below unusable, and nothing else", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b", "a"), turnOf("c", "b"), turnOf("d", "a"));
    expect(await stub.delete("b")).toBe(true);
    expect(await stub.delete("b")).toBe(false);
    expect(await stub.retrieve("b")).toBeNull();
    expect(await stub.retrieve("c")).not.toBeNull();
    expect(await historyIds(stub, "c")).toBeUndefined();
    expect(await historyIds(stub, "d")).toHaveLength(4);
  });

  it("the last turn releases the storage, and a new turn may begin again", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b", "a"));
    await stub.delete("a");
    expect(await storageOf(stub)).toMatchObject({ tables: ["turns"], alarm: expect.any(Number) });
    await stub.delete("b");
    expect(await storageOf(stub)).toEqual(empty);
    expect(await stub.retrieve("b")).toBeNull();
    await settle(stub, turnOf("c"));
    expect(await historyIds(stub, "c")).toEqual(["msg_c_in", "msg_c_out"]);
    expect((await storageOf(stub)).alarm).not.toBeNull();
  });

  it("the last turn while another one is settled loses neither that one nor its alarm", async () => {
    for (const deleteFirst of [true, false]) {
      const stub = newHome();
      await settle(stub, turnOf("a"));
      const work = [() => stub.delete("a"), () => stub.settle(turnOf("b"))];
      await Promise.all((deleteFirst ? work : work.toReversed()).map((start) => start()));
      expect(await turnsIn(stub)).toEqual(["b"]);
      await settle(stub, turnOf("c", "b"));
      expect(await historyIds(stub, "c")).toHaveLength(4);
      expect((await storageOf(stub)).alarm).not.toBeNull();
    }
  });
});

describe("the lease of a conversation", () => {
  /** The Workers' ends of connections, by ticket. A turn's open connection holds its lease. */
  const sockets = new Map<string, WebSocket>();
  afterEach(() => {
    for (const socket of sockets.values()) socket.close();
    sockets.clear();
  });

  function ask(stub: Stub, id: string, ticket: string, init: RequestInit = {}, waitMs = 0) {
    const headers = { upgrade: "websocket" };
    return stub.fetch(`http://home/conversation?id=${id}&ticket=${ticket}&wait=${waitMs}`, { headers, ...init });
  }

  /** The history that the turn gets, or the reason for a refusal. */
  async function enter(stub: Stub, id: string, ticket: string) {
    const response = await ask(stub, id, ticket);
    if (!response.webSocket) return response.json();
    sockets.set(ticket, response.webSocket);
    return receiveHistory(response.webSocket);
  }

  async function newConversation(text = "Hello!") {
    const address = newTurnAddress();
    const stub = env.HOME.getByName(`tenant:${address.home}`);
    const id = conversationId(address);
    const items = JSON.stringify([message(itemId("message", address, "input", 0), text)]);
    await stub.createConversation(id, address.turn, {}, items);
    return { stub, id, address, enter: (ticket: string) => enter(stub, id, ticket) };
  }

  /** Settles a turn under the lease of a ticket. */
  function leased(token: string): TurnToSettle {
    return { ...turnOf(newTurnAddress().turn), lease: { token, joins: true } };
  }

  const entered = { items: expect.any(String), messages: expect.any(String) };
  const locked = { code: "conversation_locked" };
  const unsettled = { ok: false, error: locked };

  it("ends its socket at both ends, so that the platform keeps nothing of the turn's request", async () => {
    const { enter } = await newConversation();
    await enter("first");
    const closed = new Promise((resolve) => sockets.get("first")?.addEventListener("close", resolve));
    sockets.get("first")?.close();
    expect(await closed).toMatchObject({ wasClean: true });
    expect(await enter("second")).toEqual(entered);
  });

  it("is released when the conversation is too long to enter", async () => {
    const { enter } = await newConversation("x".repeat(13 * 1024 * 1024));
    for (const ticket of ["first", "second"]) {
      expect(await enter(ticket)).toMatchObject({ code: "context_length_exceeded" });
    }
  });

  it("is released when the storage fails at the entry", async () => {
    // Its memory has no history of that length.
    const { stub, id, enter } = await newConversation("x".repeat(2 * 1024 * 1024));
    await runInDurableObject(stub, async (home: Home, { storage: { sql } }) => {
      sql.exec("ALTER TABLE turns RENAME TO hidden");
      await expect(home.fetch(new Request(`http://home/conversation?id=${id}&ticket=first&wait=0`))).rejects.toThrow();
      sql.exec("ALTER TABLE hidden RENAME TO turns");
    });
    expect(await enter("second")).toMatchObject(entered);
  });

  it("is released by a refused run", async () => {
    const { stub, id, address, enter } = await newConversation();
    const output = { type: "function_call_output", id: "fco_1", call_id: "call_1", output: "Sunny" };
    const run = {
      ...newTurnAddress(address.home),
      parent: null,
      createdAt: Date.now(),
      input: [output],
      inConversation: true,
      request: { background: true, model: "m", conversation: id },
      model: { name: "m", upstream: "m", engine: "chat" },
      cacheSalt: "salt",
      affinity: { isRooted: true },
    };
    expect(await stub.startRun(JSON.stringify(run), "run", 0)).toMatchObject({ ok: false, error: { status: 400 } });
    expect(await enter("next")).toMatchObject(entered);
  });

  it("ends with the turn that is settled under it", async () => {
    const { stub, enter } = await newConversation();
    expect(await enter("turn")).toMatchObject(entered);
    expect(await enter("hasty")).toMatchObject(locked);
    expect(await stub.settle(leased("turn"))).toEqual({ ok: true, value: 1 });
    expect(await enter("next")).toMatchObject(entered);
    expect(await stub.settle(leased("turn"))).toMatchObject(unsettled);
  });

  it("stays with the Worker when settling fails, until the Worker is gone", async () => {
    const { stub, enter } = await newConversation();
    expect(await enter("turn")).toMatchObject(entered);
    await runInDurableObject(stub, async (home: Home, { storage: { sql } }) => {
      sql.exec("CREATE TRIGGER broken BEFORE INSERT ON turns BEGIN SELECT RAISE(ABORT, 'Broken.'); END");
      await expect(home.settle(leased("turn"))).rejects.toThrow("Broken.");
      sql.exec("DROP TRIGGER broken");
    });
    expect(await enter("hasty")).toMatchObject(locked);
    sockets.get("turn")?.close();
    await vi.waitFor(async () => expect(await enter("next")).toMatchObject(entered), { timeout: 120_000 });
  });

  it("of an earlier life of the object settles nothing", async () => {
    const { id, address, enter: enterFirst } = await newConversation();
    expect(await enterFirst("turn")).toMatchObject(entered);
    await abortAllDurableObjects();
    const stub = env.HOME.getByName(`tenant:${address.home}`);
    expect(await stub.settle(leased("turn"))).toMatchObject(unsettled);
    expect(await enter(stub, id, "next")).toMatchObject(entered);
  });

  it("is not granted to a turn that left while it waited", async () => {
    const { stub, id, enter } = await newConversation();
    expect(await enter("turn")).toMatchObject(entered);
    const worker = new AbortController();
    const waiting = ask(stub, id, "gone", { signal: worker.signal }, 60_000);
    worker.abort();
    await expect(waiting).rejects.toThrow();
    expect(await stub.settle(leased("turn"))).toEqual({ ok: true, value: 1 });
    await vi.waitFor(async () => expect(await enter("next")).toMatchObject(entered), { timeout: 120_000 });
  });

  it("comes with the whole history of any length", async () => {
    const text = "\u{1f600} 長い ".repeat(1_200_000);
    const { enter } = await newConversation(text);
    const history = (await enter("turn")) as History;
    expect(JSON.parse(history.items)).toMatchObject([{ content: [{ text }] }]);
    expect(history.messages).toBe("[]");
  });

  it("outlives the object's hibernation", async () => {
    const { stub, enter } = await newConversation();
    expect(await enter("turn")).toMatchObject(entered);
    await evictDurableObject(stub);
    expect(await enter("hasty")).toMatchObject(locked);
    expect(await stub.settle(leased("hasty"))).toMatchObject(unsettled);
    await evictDurableObject(stub);
    expect(await stub.settle(leased("turn"))).toEqual({ ok: true, value: 1 });
    // An ended lease is not found again.
    await evictDurableObject(stub);
    expect(await stub.settle(leased("turn"))).toMatchObject(unsettled);
    expect(await enter("next")).toMatchObject(entered);
  });

  it("is released by a Worker that ends while the object hibernates", async () => {
    const { stub, enter } = await newConversation();
    expect(await enter("turn")).toMatchObject(entered);
    await evictDurableObject(stub);
    sockets.get("turn")?.close();
    await vi.waitFor(async () => expect(await enter("next")).toMatchObject(entered), { timeout: 120_000 });
  });
});

describe("eviction", () => {
  it("loses nothing", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b", "a"));
    const read = async () => [
      await stub.snapshot("b", [{ id: "msg_a_out", turn: "a" }]),
      await stub.retrieve("a"),
      await stub.inputItems("b", { limit: 20, order: "asc" }),
      await storageOf(stub),
    ];
    const before = await read();
    await evictDurableObject(stub);
    expect(await read()).toEqual(before);
  });
});

describe("retention", () => {
  it("sets an alarm for the end of the first turn's time", async () => {
    const stub = newHome();
    const turn = turnOf("a");
    await settle(stub, turn);
    expect((await storageOf(stub)).alarm).toBe(turn.createdAt + 30 * DAY_MS);
  });

  it("hides an expired turn even before it is swept", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b"));
    await age(stub, 31, "a");
    await evictDurableObject(stub);
    expect(await stub.retrieve("a")).toBeNull();
    expect(await stub.inputItems("a", { limit: 20, order: "desc" })).toBeNull();
    expect(await stub.snapshot("a", [])).toEqual({ found: false, missing: "previous" });
    expect(await stub.snapshot(null, [{ id: "msg_a_in", turn: "a" }])).toMatchObject({ missing: "item" });
    expect(await stub.delete("a")).toBe(false);
    expect(await stub.retrieve("b")).not.toBeNull();
  });

  it("sweeps expired turns, but not those that a living turn continues", async () => {
    const stub = newHome();
    await settle(
      stub,
      turnOf("root"),
      turnOf("kept", "root"),
      turnOf("living", "kept"),
      turnOf("branch", "root"),
      turnOf("leaf", "branch"),
      turnOf("other"),
    );
    await age(stub, 31, "root", "kept", "branch", "leaf", "other");
    expect(await runDurableObjectAlarm(stub)).toBe(true);
    expect(await turnsIn(stub)).toEqual(["kept", "living", "root"]);
    expect(await stub.retrieve("kept")).toBeNull();
    expect(await historyIds(stub, "living")).toHaveLength(6);
  });

  it("keeps turns that are not expired, and sets its alarm for the oldest of them", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b"), turnOf("c"));
    await age(stub, 31, "a");
    await age(stub, 10, "b");
    await runDurableObjectAlarm(stub);
    expect(await turnsIn(stub)).toEqual(["b", "c"]);
    const { alarm } = await storageOf(stub);
    expect(Math.abs((alarm ?? 0) - (Date.now() + 20 * DAY_MS))).toBeLessThan(60_000);
  });

  it("releases the storage when everything is expired", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b", "a"));
    await age(stub, 31, "a", "b");
    expect(await runDurableObjectAlarm(stub)).toBe(true);
    expect(await storageOf(stub)).toEqual(empty);
  });

  it("deletes the whole storage without writing a row, then and with the last response", async () => {
    const expired = newHome();
    await settle(expired, turnOf("a"), turnOf("b", "a"));
    await age(expired, 31, "a", "b");
    expect(await writesOf(expired, (home) => home.alarm())).toEqual({ rows: 0, alarms: 0 });
    const deleted = newHome();
    await settle(deleted, turnOf("a"));
    expect(await writesOf(deleted, (home) => home.delete("a"))).toEqual({ rows: 0, alarms: 0 });
    for (const stub of [expired, deleted]) expect(await storageOf(stub)).toEqual(empty);
  });

  it("sweeps ancestors together with the last turn that needed them", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b", "a"));
    await age(stub, 31, "a");
    await runDurableObjectAlarm(stub);
    expect(await turnsIn(stub)).toEqual(["a", "b"]);
    await age(stub, 31, "b");
    await runDurableObjectAlarm(stub);
    expect(await storageOf(stub)).toEqual(empty);
  });

  it("sweeps an ancestor that only a deleted turn needed", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a"), turnOf("b", "a"), turnOf("c"));
    await age(stub, 31, "a");
    await stub.delete("b");
    await runDurableObjectAlarm(stub);
    expect(await turnsIn(stub)).toEqual(["c"]);
  });

  it("sweeps all rows of a large turn", async () => {
    const stub = newHome();
    await settle(stub, turnOf("a", null, "x".repeat(500_000)), turnOf("b"));
    await age(stub, 31, "a");
    await runDurableObjectAlarm(stub);
    expect(await turnsIn(stub)).toEqual(["b"]);
  });
});

describe("a turn larger than a row may be", () => {
  const filled = { cjk: "多".repeat(900_000), emoji: `x${"🦜".repeat(450_000)}`, ascii: "x".repeat(900_000) };

  it.each(Object.entries(filled))("is stored in rows below 2 MB: %s", async (_, text) => {
    const stub = newHome();
    const large = { ...turnOf("a", null, text), response: JSON.stringify({ instructions: text }) };
    await settle(stub, large);
    const rows = await runInDurableObject(stub, (_, state) =>
      state.storage.sql
        .exec<{ bytes: number }>(
          "SELECT octet_length(input) + octet_length(output) + octet_length(response) AS bytes FROM turns",
        )
        .toArray(),
    );
    expect(rows.length).toBeGreaterThan(1);
    for (const { bytes } of rows) expect(bytes).toBeLessThan(2_000_000);
    await evictDurableObject(stub);
    const found = await stub.retrieve("a");
    expect(found?.head === large.response).toBe(true);
    expect(found?.output === large.output).toBe(true);
    const snapshot = await stub.snapshot("a", []);
    const whole = `[${large.input.slice(1, -1)},${large.output.slice(1, -1)}]`;
    expect(snapshot.found && snapshot.history.items === whole).toBe(true);
    expect(snapshot.found && snapshot.history.messages === large.messages).toBe(true);
    const page = await stub.inputItems("a", { limit: 20, order: "asc" });
    expect(page?.ok && page.value.data === large.input).toBe(true);
  });
});

describe("the calls that the Worker makes to homes", () => {
  /** A namespace that notes the called objects, and calls `fail` before, which may throw. */
  function noting(fail: () => void = () => {}) {
    const calls: string[] = [];
    const getByName = (name: string) => {
      const stub = env.HOME.getByName(name);
      return {
        snapshot: (...given: Parameters<Home["snapshot"]>) => {
          calls.push(`snapshot ${name}`);
          return stub.snapshot(...given);
        },
        settle: async (turn: TurnToSettle) => {
          calls.push(`settle ${name}`);
          fail();
          return stub.settle(turn);
        },
        settleTogether: async (turns: readonly TurnToSettle[]) => {
          calls.push(`settle ${turns.map(({ turn }) => turn)}`);
          return stub.settleTogether(turns);
        },
      };
    };
    const client = new HomeClient(withObjects({ ...env, HOME: { getByName } as unknown as typeof env.HOME }), "tenant");
    return { calls, client };
  }

  const text: Item = { type: "message", role: "user", status: "completed", content: [] };

  it("are none before the model when there is no history", async () => {
    const { calls, client } = noting();
    expect(await client.past([text], null)).toEqual({ history: [], replays: [], input: [text], length: 0 });
    expect(calls).toEqual([]);
  });

  it("are one for each home of the references, for any items", async () => {
    const { calls, client } = noting();
    const [mine, other] = [newTurnAddress(), newTurnAddress()];
    const references: InputItem[] = [];
    for (const address of [mine, other]) {
      const turn = { ...turnOf(address.turn), input: "[]" };
      const ids = [0, 1].map((index) => itemId("message", address, "output", index));
      turn.output = JSON.stringify(ids.map((id) => message(id, id)));
      await settle(env.HOME.getByName(`tenant:${address.home}`), turn);
      references.push(...ids.map((id): InputItem => ({ type: "item_reference", id })));
    }
    const { history, input } = await client.past(references, mine);
    expect(history).toHaveLength(2);
    expect(input.map(({ id }) => id)).toEqual(references.map(({ id }) => id));
    expect(calls.sort()).toEqual([`snapshot tenant:${mine.home}`, `snapshot tenant:${other.home}`].sort());
  });

  it("are none when they would be too many", async () => {
    const { calls, client } = noting();
    const references = Array.from({ length: 257 }, (): InputItem => {
      return { type: "item_reference", id: itemId("message", newTurnAddress(), "output", 0) };
    });
    await expect(client.past(references, null)).rejects.toMatchObject({
      param: "input[256].id",
      code: "array_above_max_length",
    });
    expect(calls).toEqual([]);
  });

  it("end with the first few homes of which one lacks a referenced item", async () => {
    const { calls, client } = noting();
    const references = Array.from({ length: 200 }, (): InputItem => {
      return { type: "item_reference", id: itemId("message", newTurnAddress(), "output", 0) };
    });
    await expect(client.past(references, null)).rejects.toMatchObject({ param: "input[0].id", code: "item_not_found" });
    expect(calls.length).toBeLessThanOrEqual(16);
  });

  it("are one for a thousand references to one turn, which is refused if their items are too large together", async () => {
    const { calls, client } = noting();
    const address = newTurnAddress();
    const [short, long] = [0, 1].map((index) => itemId("message", address, "output", index)) as [string, string];
    const output = JSON.stringify([message(short, "short"), message(long, "x".repeat(20_000))]);
    await settle(env.HOME.getByName(`tenant:${address.home}`), { ...turnOf(address.turn), input: "[]", output });
    const times = (id: string) => Array.from({ length: 1000 }, (): InputItem => ({ type: "item_reference", id }));
    const { input } = await client.past(times(short), null);
    expect(input).toHaveLength(1000);
    await expect(client.past(times(long), null)).rejects.toMatchObject({ code: "context_length_exceeded" });
    expect(calls).toHaveLength(2);
  });

  it("are two to settle turns that end at the same time, of which the second one writes all others at once", async () => {
    const { calls, client } = noting();
    const { home } = newTurnAddress();
    const stub = env.HOME.getByName(`tenant:${home}`);
    await settle(stub, turnOf("d"));
    const rows = ["a", "b", "c", "d"].map((turn) => client.settle(home, turnOf(turn)));
    expect(await Promise.all(rows)).toEqual([1, 1, 1, 0]);
    expect(calls).toEqual([`settle tenant:${home}`, "settle b,c,d"]);
    await evictDurableObject(stub);
    expect(await turnsIn(stub)).toEqual(["a", "b", "c", "d"]);
  });

  it("for several turns store none of them if one cannot be written", async () => {
    const stub = newHome();
    const turns = [turnOf("a"), { ...turnOf("b"), input: null as unknown as string }];
    await expect(runInDurableObject(stub, (home: Home) => home.settleTogether(turns))).rejects.toThrow();
    expect(await stub.retrieve("a")).toBeNull();
    await settle(stub, turnOf("a"));
    expect(await historyIds(stub, "a")).toEqual(["msg_a_in", "msg_a_out"]);
  });

  it("are one to settle, and a second only if the platform's error permits a retry", async () => {
    const { calls, client } = noting();
    const { home } = newTurnAddress();
    await client.settle(home, turnOf("a"));
    expect(calls).toEqual([`settle tenant:${home}`]);

    let failures = 1;
    const flaky = noting(() => {
      if (failures-- > 0) throw Object.assign(new Error("Network connection lost."), { retryable: true });
    });
    await flaky.client.settle(home, turnOf("b"));
    expect(flaky.calls).toHaveLength(2);
    expect(await turnsIn(env.HOME.getByName(`tenant:${home}`))).toEqual(["a", "b"]);

    const broken = noting(() => {
      throw new Error("Full.");
    });
    await expect(broken.client.settle(home, turnOf("c"))).rejects.toThrow("Full.");
    expect(broken.calls).toHaveLength(1);
  });
});

describe("looking for items", () => {
  /** Stores on an object's storage, and the statements that read turns' bodies. */
  async function reading(work: (turns: TurnStore, items: ItemStore) => void): Promise<string[]> {
    const bodies: string[] = [];
    await runInDurableObject(env.HOME.getByName(newTurnAddress().home), (_home: Home, { storage }) => {
      const sql = new Proxy(storage.sql, {
        get(target, key) {
          if (key !== "exec") return Reflect.get(target, key);
          return (query: string, ...bindings: unknown[]) => {
            if (/AS body/.test(query)) bodies.push(query);
            return target.exec(query, ...bindings);
          };
        },
      });
      const tables = new Tables(sql);
      const turns = new TurnStore(tables, () => -1);
      work(turns, new ItemStore(tables, turns));
    });
    return bodies;
  }
  const addresses = Array.from({ length: 50 }, () => newTurnAddress("h".repeat(22)));
  const idOf = (turn: number, index: number) => itemId("message", addresses[turn] as TurnAddress, "output", index);
  const fill = (turns: TurnStore) => {
    for (const [position, { turn }] of addresses.entries()) {
      const output = JSON.stringify([0, 1].map((index) => message(idOf(position, index), "x")));
      const { lease: _, ...settled } = turnOf(turn);
      turns.insert({ ...settled, input: "[]", output, base: null, position: position + 1 });
    }
  };

  it("reads a turn once for all of its items", async () => {
    const reads = await reading((turns, items) => {
      fill(turns);
      const { turn } = addresses[7] as TurnAddress;
      const { found } = items.ofTurn(turn, new Set([idOf(7, 0), idOf(7, 1)]));
      expect([...found.keys()]).toEqual([idOf(7, 0), idOf(7, 1)]);
    });
    expect(reads).toHaveLength(1);
  });

  it("reads the side of the turn that the id of a conversation's item names, and nothing else", async () => {
    const reads = await reading((turns, items) => {
      fill(turns);
      expect(items.ofConversation(idOf(3, 1))?.id).toBe(idOf(3, 1));
      expect(items.ofConversation(itemId("message", newTurnAddress(), "output", 0))).toBeUndefined();
    });
    expect(reads).toHaveLength(1);
  });

  it("begins a page at the turn of its cursor", async () => {
    const reads = await reading((turns, items) => {
      fill(turns);
      const page = items.page({ order: "asc", limit: 2, after: idOf(40, 1) });
      expect(page?.firstId).toBe(idOf(41, 0));
    });
    // Two sides of the turns 40, 41 and 42.
    expect(reads).toHaveLength(6);
  });
});
