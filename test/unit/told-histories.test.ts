import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { conversationId, newTurnAddress } from "@responses-edge/responses-api/ids";
import { itemId } from "@responses-edge/responses-api/items/registry";
import { expect, it } from "vitest";
import { receiveHistory } from "../../src/store/home/conversation-lock.ts";
import { EMPTY_HISTORY, type KnownHistory, readHistory } from "../../src/store/home/history.ts";
import type { Home } from "../../src/store/home/home.ts";
import type { ForegroundTurn } from "../../src/store/home/settlement.ts";
import { homeUrl } from "../../src/store/objects/rpc.ts";

/** The histories in a home's memory, which a Worker of its process reads without a call. */

function turnOf(turn: string, parent: string | null = null, text = turn): ForegroundTurn {
  const item = (side: string) => JSON.stringify([{ type: "message", id: `${side} ${turn}`, content: [{ text }] }]);
  const messages = JSON.stringify([{ item: `out ${turn}`, messages: [] }]);
  const shared = { createdAt: Date.now(), response: '{"status":"completed"}' };
  return { turn, parent, input: item("in"), output: item("out"), messages, ...shared };
}

/** Stores turns in a new home, each with the one before it as its parent, and works on the home. */
function withChain<T>(texts: Record<string, string>, work: (home: Home) => T | Promise<T>): Promise<T> {
  return runInDurableObject(env.HOME.getByName(`tenant:${newTurnAddress().home}`), async (home: Home) => {
    let parent: string | null = null;
    for (const [turn, text] of Object.entries(texts)) {
      await home.settleTogether([turnOf(turn, parent, text)]);
      home.chains.tell(turn);
      parent = turn;
    }
    return work(home);
  });
}

function stored(home: Home, turn: string) {
  const snapshot = home.snapshot(turn, []);
  return readHistory(snapshot.found ? snapshot.history : EMPTY_HISTORY);
}

it("are those of turns of which an answer has told", () =>
  withChain({ a: "a" }, async (home) => {
    await home.settleTogether([turnOf("b", "a")]);
    expect(home.chains.told("b")).toBeUndefined();
    home.chains.tell("b");
    expect(home.chains.told("b")).toMatchObject(stored(home, "b"));
    expect(home.chains.told("c")).toBeUndefined();
  }));

it("are the same as those that are stored, and turns share the values of earlier items", () =>
  withChain({ a: "a", b: "b" }, async (home) => {
    const before = home.chains.told("b");
    await home.settleTogether([turnOf("c", "b")]);
    home.chains.tell("c");
    const told = home.chains.told("c");
    expect(told).toEqual({ ...stored(home, "c"), length: expect.any(Number) });
    expect(told?.history).toHaveLength(6);
    expect(told?.history.slice(0, 4).every((item, index) => item === before?.history[index])).toBe(true);
    expect(told?.replays[0]).toBe(before?.replays[0]);
  }));

it("cannot be changed by a turn", () =>
  withChain({ a: "a", b: "b" }, (home) => {
    home.chains.told("a");
    const told = home.chains.told("b");
    for (const value of [told?.history, told?.replays, told?.history[3], told?.replays[1]]) {
      expect(Object.isFrozen(value)).toBe(true);
    }
    const [item] = (told?.history ?? []) as unknown as { content: { text: string }[] }[];
    expect(() => Object.assign(item?.content[0] ?? {}, { text: "changed" })).toThrow(TypeError);
  }));

it("end with a deletion in their home", () =>
  withChain({ a: "a", b: "b" }, async (home) => {
    expect(home.chains.told("b")).toBeDefined();
    await home.delete("a");
    expect(home.chains.told("b")).toBeUndefined();
  }));

it("that are long are read anew for each turn", () =>
  withChain({ a: "x".repeat(800_000) }, (home) => {
    const told = home.chains.told("a");
    expect(told).toMatchObject(stored(home, "a"));
    expect(home.chains.told("a")?.history[0]).not.toBe(told?.history[0]);
  }));

it("stay there for the responses of many trees from which branches begin again and again", () =>
  withChain({}, async (home) => {
    const roots = Array.from({ length: 40 }, (_, tree) => `root ${tree}`);
    await home.settleTogether(roots.map((root) => turnOf(root)));
    for (const branch of ["first", "second", "third"]) {
      for (const root of roots) {
        // The first branch takes its place.
        if (branch === "second") expect(home.snapshot(root, [])).toMatchObject({ found: true });
        if (branch === "third") expect(home.chains.told(root)?.history).toHaveLength(2);
        home.chains.tell(root);
        await home.settleTogether([turnOf(`${branch} of ${root}`, root)]);
      }
    }
  }));

it("are those of a conversation, too: a Worker that knows the last state is sent nothing, and each other one all", () => {
  const address = newTurnAddress();
  const id = conversationId(address);
  return runInDurableObject(env.HOME.getByName(`tenant:${address.home}`), async (home: Home) => {
    const turn = async (known: KnownHistory | undefined, text: string) => {
      const url = homeUrl({ kind: "conversation", id, ticket: text, waitMs: 0, ...(known && { known: known.id }) });
      const { webSocket } = await home.fetch(new Request(url, { headers: { upgrade: "websocket" } }));
      const history = webSocket ? await receiveHistory(webSocket) : "refused";
      await home.settle({ ...turnOf(text), lease: { token: text, joins: true } });
      return history;
    };
    const idsOf = (history: KnownHistory | undefined) => history?.values().history.map(({ id }) => id);
    const first = itemId("message", address, "input", 0);
    await home.createConversation(id, address.turn, {}, JSON.stringify([{ type: "message", id: first }]));
    const one = home.chains.conversation.latest;
    expect(idsOf(one)).toEqual([first]);
    expect(await turn(one, "a")).toBeUndefined();
    const two = home.chains.conversation.latest;
    expect(idsOf(two)).toEqual([first, "in a", "out a"]);
    expect(two?.values().history[0]).toBe(one?.values().history[0]);
    for (const known of [one, undefined]) {
      const before = home.chains.conversation.latest?.texts;
      expect(await turn(known, `with ${known?.id}`)).toEqual(before);
    }
    await home.deleteConversationItem(id, first, "removal", 0);
    const left = home.chains.conversation.latest?.texts.items.replace(`{"type":"message","id":"${first}"},`, "");
    expect(await turn(home.chains.conversation.latest, "after the removal")).toMatchObject({ items: left });
  });
});

it("do not exceed the memory for chains", () =>
  withChain({ a: "x".repeat(500_000) }, async (home) => {
    // The texts of two such chains have a place, those of two with their values have none.
    await home.settleTogether([turnOf("b", null, "y".repeat(500_000))]);
    home.chains.tell("b");
    expect(home.chains.told("a")).toBeDefined();
    expect(home.chains.told("b")).toBeDefined();
    expect(home.chains.told("a")).toBeUndefined();
  }));
