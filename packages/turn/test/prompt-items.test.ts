import type { Item } from "@responses-edge/responses-api/items/registry";
import { promptItems } from "@responses-edge/turn/prompt";
import { describe, expect, it } from "vitest";

/** The items of earlier turns that a prompt has. */

const user = (text: string) => ({
  ...{ type: "message", role: "user", status: "completed" },
  content: [{ type: "input_text", text }],
});
const said = (text: string, status = "completed") => ({
  ...{ type: "message", role: "assistant", status },
  content: [{ type: "output_text", text, annotations: [] }],
});
const thought = (text: string, status = "completed") => ({
  ...{ type: "reasoning", summary: [], status },
  content: [{ type: "reasoning_text", text }],
});
const call = (id: string, status = "completed") => ({
  ...{ type: "function_call", call_id: id, name: "f", arguments: "{}" },
  status,
});
const answer = (id: string) => ({
  type: "function_call_output",
  call_id: id,
  output: "It is sunny.",
  status: "completed",
});
const search = (status = "completed") => ({
  ...{ type: "web_search_call", id: "ws_1", status },
  action: { type: "search", query: "q" },
});
const CUT = "incomplete";

/** The items that a prompt lacks; `next` is the new input. */
function leftOut(history: object[], ...next: object[]): object[] {
  const kept = promptItems(history as Item[], next as Item[]);
  const all = [...history, ...next];
  // The others keep their order.
  expect(kept).toEqual(all.filter((item) => kept.includes(item as Item)));
  return all.filter((item) => !kept.includes(item as Item));
}

describe("a prompt has all of a completed response", () => {
  it.each<[string, object[], object[]]>([
    ["a text", [user("1"), said("2")], [user("3")]],
    ["a thought and a text", [user("1"), thought("2"), said("3")], [user("4")]],
    ["a thought and calls", [user("1"), thought("2"), call("a"), call("b")], [answer("a"), answer("b")]],
    ["thoughts around a search", [user("1"), thought("2"), search(), thought("3"), said("4")], [user("5")]],
    ["calls that were not answered, which is refused", [user("1"), call("a")], [user("2")]],
    ["calls of which one was not answered", [user("1"), call("a"), call("b")], [answer("b")]],
  ])("%s", (_, history, next) => {
    expect(leftOut(history, ...next)).toEqual([]);
  });
});

describe("of a response that was cut off a prompt has", () => {
  it.each<[string, object[], object[]]>([
    ["the question alone", [user("1")], []],
    ["the text so far", [user("1"), said("2", CUT)], []],
    ["a finished thought before the text", [user("1"), thought("2"), said("3", CUT)], []],
    ["no unfinished thought", [user("1"), thought("2", CUT)], [thought("2", CUT)]],
    ["a finished thought without a text", [user("1"), thought("2")], []],
    ["no call", [user("1"), call("a", CUT)], [call("a", CUT)]],
    ["no thought before a call", [user("1"), thought("2"), call("a", CUT)], [thought("2"), call("a", CUT)]],
    ["the text before a call", [user("1"), said("2"), call("a", CUT)], [call("a", CUT)]],
    ["no call beside one", [user("1"), call("a"), call("b", CUT)], [call("a"), call("b", CUT)]],
    ["no call before a text", [user("1"), call("a"), said("2", CUT)], [call("a")]],
    ["a search, and not the thought after it", [search(), thought("2", CUT)], [thought("2", CUT)]],
    ["no unfinished search", [user("1"), thought("2"), search(CUT)], [thought("2"), search(CUT)]],
  ])("%s", (_, history, missing) => {
    expect(leftOut(history, user("Why?"))).toEqual(missing);
    // So it is in later turns.
    expect(leftOut([...history, user("Why?"), said("So.")], user("Really?"))).toEqual(missing);
    expect(leftOut([...history, user("Why?"), call("z")], answer("z"))).toEqual(missing);
  });

  it("an unfinished thought whose own message is there", () => {
    const history = [user("1"), { ...thought("2", CUT), id: "rs_1" }, user("3")] as Item[];
    expect(promptItems(history, [], [{ item: "rs_1" }])).toEqual(history);
    expect(promptItems(history, [], [{ item: "rs_2" }])).toHaveLength(2);
  });

  it("the calls that the client answers", () => {
    const history = [user("1"), thought("2"), call("a"), call("b", CUT), call("c", CUT)];
    expect(leftOut(history, answer("a"), answer("b"))).toEqual([call("c", CUT)]);
    expect(leftOut(history, answer("b"))).toEqual([call("a"), call("c", CUT)]);
  });

  it("no call whose id a later call has, too", () => {
    const history = [user("1"), call("a", CUT), user("2"), call("a")];
    expect(leftOut(history, answer("a"))).toEqual([call("a", CUT)]);
    expect(promptItems(history as Item[], [answer("a")] as Item[])).toEqual([
      user("1"),
      user("2"),
      call("a"),
      answer("a"),
    ]);
  });
});
