import {
  MAX_ID_LENGTH,
  namedTree,
  namedTurnAddress,
  newCallId,
  newHome,
  newSharedHome,
  newTurnAddress,
  parseItemId,
  parseResponseId,
  responseId,
  treeName,
  treeOf,
} from "@responses-edge/responses-api/ids";
import { itemId } from "@responses-edge/responses-api/items/registry";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { codePoint } from "../../../test/code-points.ts";

describe("ids", () => {
  it("a response's id tells where it is kept", () => {
    const address = newTurnAddress();
    expect(responseId(address)).toMatch(/^resp_[0-9A-Za-z]{32}$/);
    expect(parseResponseId(responseId(address))).toEqual(address);
  });

  it("a turn in a given home stays there, as another turn", () => {
    const first = newTurnAddress();
    const second = newTurnAddress(first.home);
    expect(second.home).toBe(first.home);
    expect(second.turn).not.toBe(first.turn);
  });

  it("an id in a home of several trees tells its tree", () => {
    const [home, tree] = [newSharedHome(), treeName(7)];
    const [first, second] = [newTurnAddress(home, tree), newTurnAddress(home, tree)];
    expect(responseId(first)).toMatch(/^resp_[0-9A-Za-z]{32}$/);
    expect(second.turn).not.toBe(first.turn);
    for (const address of [first, second]) {
      expect(parseResponseId(responseId(address))).toEqual(address);
      expect(treeOf(address)).toEqual({ home, tree });
    }
  });

  it("a home of any other key is one tree", () => {
    const home = newHome();
    expect(treeOf(newTurnAddress(home))).toEqual({ home, tree: "" });
    expect(treeOf({ home: "h".repeat(22), turn: "t".repeat(10) }).tree).toBe("");
  });

  it("an item's id has its turn, side and place, for every type", () => {
    fc.assert(
      fc.property(
        fc.constantFrom("message", "reasoning", "function_call", "function_call_output", "something_else"),
        fc.constantFrom("input" as const, "output" as const),
        fc.nat(1_000_000),
        (type, side, index) => {
          const address = newTurnAddress();
          const id = itemId(type, address, side, index);
          expect(id.length).toBeLessThanOrEqual(MAX_ID_LENGTH);
          expect(parseItemId(id)).toEqual({ ...address, side, index });
        },
      ),
    );
  });

  it.each([
    "",
    "resp_",
    `resp_${"a".repeat(31)}`,
    `resp_${"a".repeat(33)}`,
    `resp_${"a".repeat(31)}-`,
    `resp_${"a".repeat(32)}\n`,
    ` resp_${"a".repeat(32)}`,
    `RESP_${"a".repeat(32)}`,
    `msg_${"a".repeat(32)}`,
    "resp_68a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f607",
  ])("%j is no id of a response here", (id) => {
    expect(parseResponseId(id)).toBeUndefined();
  });

  it.each([
    "",
    "msg_1",
    `msg_${"a".repeat(32)}`,
    `msg_${"a".repeat(32)}x0`,
    `msg_${"a".repeat(32)}o`,
    `msg_${"a".repeat(32)}o0000000`,
    `${"a".repeat(32)}o0`,
  ])("%j is no id of an item here", (id) => {
    expect(parseItemId(id)).toBeUndefined();
  });

  it("any text is an id of this server or none: never an exception", () => {
    fc.assert(
      fc.property(fc.string({ unit: codePoint }), (text) => {
        expect(parseResponseId(text)).toBeUndefined();
        expect(parseItemId(`msg_${text}`)).toBeUndefined();
      }),
    );
  });

  it("new ids do not repeat", () => {
    const ids = Array.from({ length: 2_000 }, () => [responseId(newTurnAddress()), newCallId()]).flat();
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe("the address of a named turn", () => {
  const address = (no: number, perHome = 32) => {
    const name = { series: "batch_1", no };
    return namedTurnAddress(name, namedTree(name, perHome));
  };

  it("is always the same, and that of an id", () => {
    expect(address(7)).toEqual(address(7));
    expect(parseResponseId(responseId(address(7)))).toEqual(address(7));
  });

  it("is in a home with its neighbours, in a tree of its own", () => {
    const turns = Array.from({ length: 64 }, (_, no) => address(no));
    expect(new Set(turns.map(({ home }) => home)).size).toBe(2);
    expect(new Set(turns.map((turn) => JSON.stringify(treeOf(turn)))).size).toBe(64);
    expect(treeOf(address(7, 1)).tree).toBe("");
    expect(address(7, 1).home).not.toBe(address(8, 1).home);
  });
});
