import { evictDurableObject, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { newTurnAddress, responseId, type TurnAddress } from "@responses-edge/responses-api/ids";
import { itemId } from "@responses-edge/responses-api/items/registry";
import { describe, expect, it } from "vitest";

/** A home that is imported in the parts that the Worker sends. */

function lineOf(address: TurnAddress, text: string): string {
  const item = { type: "message", role: "user", status: "completed", content: [{ type: "input_text", text }] };
  return JSON.stringify({
    id: responseId(address),
    object: "response",
    status: "completed",
    created_at: 1,
    model: "m",
    output: [],
    input: [{ ...item, id: itemId("message", address, "input", 0) }],
    turn: { id: address.turn, parent: null, created_at_ms: Date.now(), position: null, base: null, messages: null },
  });
}

function newHome() {
  const first = newTurnAddress();
  const second = newTurnAddress(first.home);
  const begin = { object: "home", id: first.home, version: 1, taken_out: [], in_progress: [] };
  const stub = env.HOME.getByName(`tenant:${first.home}`);
  const lines = [JSON.stringify(begin), lineOf(first, "多".repeat(200_000)), lineOf(second, "two")];
  const parts = (ticket: string) =>
    lines.map((line, part) => ({ ticket, part, isLast: part === lines.length - 1, lines: [line] }));
  return { stub, first, second, parts };
}

describe("a home that is imported in parts", () => {
  it("is empty until the last part, and then complete, also when its object is restarted meanwhile", async () => {
    const { stub, first, second, parts } = newHome();
    for (const part of parts("a")) {
      expect(await stub.retrieve(first.turn)).toBeNull();
      expect(await stub.import(part)).toBe(part.isLast ? "imported" : "waiting");
      await evictDurableObject(stub);
    }
    expect(await stub.retrieve(second.turn)).not.toBeNull();
    const items = await stub.inputItems(first.turn, { limit: 1, order: "asc" });
    expect(items?.ok && items.value.data).toContain("多".repeat(200_000));
    await runInDurableObject(stub, (_, { storage: { sql } }) => {
      expect(sql.exec("SELECT 1 FROM sqlite_schema WHERE name = 'waiting_lines'").toArray()).toEqual([]);
    });
    for (const part of parts("b")) expect(await stub.import(part)).toBe("unchanged");
  });

  it("belongs to the import that began last; the other one gets an error", async () => {
    const { stub, first, parts } = newHome();
    const [[a0, a1], [b0, b1, b2]] = [parts("a"), parts("b")];
    if (!a0 || !a1 || !b0 || !b1 || !b2) throw new Error("There are three parts.");
    expect(await stub.import(a1)).toBe("interrupted");
    expect(await stub.import(a0)).toBe("waiting");
    expect(await stub.import(b0)).toBe("waiting");
    expect(await stub.import(a1)).toBe("interrupted");
    expect(await stub.import(b2)).toBe("interrupted");
    expect(await stub.import(b1)).toBe("waiting");
    expect(await stub.import(b2)).toBe("imported");
    expect(await stub.retrieve(first.turn)).not.toBeNull();
  });

  it("stays unchanged when a row cannot be written, and deletes its storage when no import continues", async () => {
    const { stub, first, parts } = newHome();
    const [begin, one] = parts("a");
    if (!begin || !one) throw new Error("There are parts.");
    const twice = { ...begin, isLast: true, lines: [...begin.lines, ...one.lines, ...one.lines] };
    await runInDurableObject(stub, async (object) => {
      await expect(object.import(twice)).rejects.toThrow();
    });
    expect(await stub.retrieve(first.turn)).toBeNull();
    expect(await stub.import(begin)).toBe("waiting");
    await runInDurableObject(stub, async (object, { storage }) => {
      await object.alarm();
      expect(storage.sql.exec("SELECT name FROM sqlite_schema WHERE name NOT LIKE '_cf_%'").toArray()).toEqual([]);
    });
  });
});
