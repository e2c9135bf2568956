import fc from "fast-check";
import { expect, it } from "vitest";

/** The tree of a chat and the path through it, by the page's own module. */

interface Turn {
  key: string;
  parent?: string;
  id?: string;
  items?: object[];
  isStored: boolean;
  isDropped?: boolean;
}

interface Chat {
  add(turn: Turn): void;
  get(key: string): Turn | undefined;
  path(): Turn[];
  choose(turn: Turn, isEnd?: boolean): void;
  childrenOf(turn: Turn | undefined): readonly Turn[];
  choices: object;
}

const module = new URL("../../packages/console/src/chat-model.ts", import.meta.url).href;
const { Chat, continuationOf, repeatable } = (await import(module)) as {
  Chat: new () => Chat;
  continuationOf: (path: readonly Turn[], outputOf: (turn: Turn) => object[]) => { previous?: string; items: object[] };
  repeatable: (output: readonly object[], answered: ReadonlySet<string>) => object[];
};

const turn = (key: string, more: Partial<Turn> = {}): Turn => ({ key, id: `resp_${key}`, isStored: true, ...more });

/** A tree: the parent of each turn is one before it, or none. */
const trees = fc
  .array(fc.nat(), { minLength: 1, maxLength: 30 })
  .map((numbers) =>
    numbers.map((number, at) =>
      turn(String(at), number % (at + 1) === at ? {} : { parent: String(number % (at + 1)) }),
    ),
  );

it("the path through a chosen turn begins at the root, goes on from turn to turn, and survives a reload", () =>
  fc.assert(
    fc.property(trees, fc.nat(), fc.boolean(), (turns, number, isEnd) => {
      const chat = new Chat();
      for (const each of turns) chat.add(each);
      const chosen = turns[number % turns.length] as Turn;
      chat.choose(chosen, isEnd);
      const path = chat.path();
      expect(path).toContain(chosen);
      expect(path.map(({ parent }) => parent)).toEqual([undefined, ...path.slice(0, -1).map(({ key }) => key)]);
      if (isEnd) expect(path.at(-1)).toBe(chosen);
      else expect(chat.childrenOf(path.at(-1))).toEqual([]);
      const again = new Chat();
      for (const each of turns) again.add(each);
      again.choices = JSON.parse(JSON.stringify(chat.choices));
      expect(again.path()).toEqual(path);
    }),
  ));

it("a request continues the last stored turn by its id, and has the turns after it; a dropped one is left out", () => {
  const question = (text: string) => [{ type: "message", role: "user", content: text }];
  const path = [
    turn("stored"),
    turn("unstored", { isStored: false, items: question("one") }),
    turn("dropped", { isStored: false, items: question("two"), isDropped: true }),
    turn("last", { isStored: false, items: question("three") }),
  ];
  const answer = { type: "message", role: "assistant" };
  expect(continuationOf(path, () => [answer])).toEqual({
    previous: "resp_stored",
    items: [...question("one"), answer, ...question("three"), answer],
  });
  expect(continuationOf([], () => [])).toEqual({ items: [] });
});

it("of an unstored answer, calls without an output and thoughts that nothing follows are not sent", () => {
  const thought = { type: "reasoning" };
  const message = { type: "message", content: [{ type: "output_text", text: "Hello" }] };
  const call = { type: "function_call", call_id: "one" };
  expect(repeatable([thought, message, thought, call], new Set())).toEqual([thought, message]);
  expect(repeatable([thought, call], new Set(["one"]))).toEqual([thought, call]);
  expect(repeatable([thought, { type: "message", content: [] }], new Set())).toEqual([]);
});
