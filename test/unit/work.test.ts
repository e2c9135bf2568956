import { toChatMessages } from "@responses-edge/engines/chat/messages";
import { toolsOf } from "@responses-edge/engines/offered-tools";
import type { CreateRequest } from "@responses-edge/responses-api/create-bodies";
import type { Item } from "@responses-edge/responses-api/items/registry";
import type { Engine, Prompt, PromptSize } from "@responses-edge/turn/contract/engine";
import { checkCallPairs, promptItems, withItemIds } from "@responses-edge/turn/prompt";
import { truncateToFit } from "@responses-edge/turn/truncation";
import { describe, expect, it } from "vitest";
import { JoinedSession } from "../../src/tools/joined-session.ts";
import type { SessionRequest } from "../../src/tools/plugin.ts";
import { PLUGINS } from "../../src/tools/plugins.ts";
import { counted } from "../hostile/counting.ts";

/** The work after a request's validation is proportional to its size. */

const user = (text: string): Item => ({
  type: "message",
  role: "user",
  status: "completed",
  content: [{ type: "input_text", text }],
});
const call = (index: number): Item => ({
  type: "function_call",
  call_id: `c${index}`,
  name: "f",
  arguments: "{}",
  status: "completed",
});
const output = (index: number): Item => ({
  type: "function_call_output",
  call_id: `c${index}`,
  output: "",
  status: "completed",
});
const served = (index: number): Item => ({
  type: "mcp_call",
  id: `mcp_${index}`,
  server_label: "docs",
  name: "look",
  arguments: "{}",
  status: "completed",
  approval_request_id: null,
  output: "found",
  error: null,
});
const asked = (index: number): Item => ({
  type: "mcp_approval_request",
  id: `mcpr_${index}`,
  server_label: "docs",
  name: "look",
  arguments: "{}",
});
const answered = (index: number): Item => ({
  type: "mcp_approval_response",
  approval_request_id: `mcpr_${index}`,
  approve: false,
  reason: null,
});

type Kind = (index: number) => Item;

/** `count` items of each kind, in two orders. */
const ORDERS: Record<string, (count: number, kinds: Kind[]) => Item[]> = {
  "all of a kind": (count, kinds) => kinds.flatMap((kind) => Array.from({ length: count }, (_, index) => kind(index))),
  "in rounds": (count, kinds) => Array.from({ length: count }, (_, index) => kinds.map((kind) => kind(index))).flat(),
};

const KINDS: [name: string, kinds: Kind[]][] = [
  ["calls and their outputs", [call, output]],
  ["calls of the server's after calls of the client's", [call, served, output]],
  ["calls of the client's after calls of the server's", [served, call, output]],
  ["refused approvals", [asked, answered]],
  ["approvals before their requests", [answered, asked]],
];

const options = {
  replays: [],
  plugins: PLUGINS,
  instructions: null,
  reasoningContext: "auto",
  laterSystemMessages: "in_place",
} as const;
const request = { model: "simulator", input: "x" } as CreateRequest;

/** The parts of a session, except the items. */
const session = { request, config: { servers: {}, builtinLabels: new Map() }, access: {}, replays: [], output: [] };

const PASSES: [name: string, pass: (items: Item[]) => unknown][] = [
  ["making messages", (given) => toChatMessages(given, options)],
  ["pairing calls", (given) => checkCallPairs(given)],
  ["making a prompt", (given) => promptItems([], given)],
  ["giving ids", (given) => withItemIds(given, { home: "h", turn: "t" }, false)],
  [
    "taking approvals",
    (given) => JoinedSession.of({ ...session, items: given, input: given } as unknown as SessionRequest),
  ],
];

const ARRANGED = KINDS.flatMap(([name, kinds]) =>
  Object.entries(ORDERS).map(([order, arrange]) => [name, order, (count: number) => arrange(count, kinds)] as const),
);

describe.each(PASSES)("%s", (_, pass) => {
  it.each(ARRANGED)("reads each of many items a few times: %s, %s", (_, _order, items) => {
    const reads = (count: number) => {
      const { value, reads } = counted(items(count));
      try {
        pass(value);
      } catch {
        // A refused request has been read, too.
      }
      return reads();
    };
    // The thousandth item needs the same number as the tenth.
    expect(reads(1000)).toBeLessThanOrEqual(110 * reads(10));
  });
});

it("the tools of a choice are found in one pass over both", () => {
  const reads = (count: number) => {
    const tools = Array.from({ length: count }, (_, index) => ({ type: "function", name: `f${index}` }));
    const { value, reads } = counted({ tools, tool_choice: { type: "allowed_tools", mode: "auto", tools } });
    expect(toolsOf({ request: value as unknown as CreateRequest }, "callable").functions).toHaveLength(count);
    return reads();
  };
  expect(reads(1000)).toBeLessThanOrEqual(110 * reads(10));
});

describe("truncation", () => {
  const WINDOW = 1_000;

  /** An engine that notes its measurements. Its texts name their number of characters per token. */
  function measuring(tokensOf: (text: string) => number) {
    const measured: number[] = [];
    const engine = {
      measure: async ({ items }: Prompt): Promise<PromptSize> => {
        const tokens = items.reduce((sum, item) => sum + (item === assistant ? 0 : tokensOf(textOf(item))), 0);
        measured.push(tokens);
        return { tokens, contextWindow: WINDOW };
      },
    } as unknown as Engine;
    return { engine, measured };
  }
  const textOf = (item: Item) =>
    item.type === "message" && item.role === "user" && item.content[0]?.type === "input_text"
      ? item.content[0].text
      : "";
  const assistant: Item = { type: "message", role: "assistant", status: "completed", content: [] };
  const promptOf = (texts: string[]) =>
    ({ items: texts.flatMap((text) => [user(text), assistant]), request }) as unknown as Prompt;
  const fitted = async (texts: string[], tokensOf: (text: string) => number) => {
    const { engine, measured } = measuring(tokensOf);
    const { items } = await truncateToFit(engine, promptOf(texts), new AbortController().signal);
    const whole = texts.reduce((sum, text) => sum + tokensOf(text), 0);
    return { kept: items.filter((item) => item !== assistant).map(textOf), measured, whole };
  };

  /** The texts at the end that fit, found one by one. */
  function expected(texts: string[], tokensOf: (text: string) => number): string[] {
    let room = WINDOW - 16;
    let start = texts.length;
    while (start > 0 && tokensOf(texts[start - 1] ?? "") <= room) {
      start -= 1;
      room -= tokensOf(texts[start] ?? "");
    }
    return texts.slice(start);
  }

  const characters = (text: string) => Math.ceil(text.length / 4);
  const CASES: [name: string, texts: string[], tokensOf: (text: string) => number][] = [
    ["10,000 turns of one length", Array.from({ length: 10_000 }, (_, i) => `${i}`.padStart(40)), characters],
    ["10,000 turns, ever longer", Array.from({ length: 10_000 }, (_, i) => `${i} `.repeat(1 + i / 500)), characters],
    [
      "10,000 turns whose tokens nothing tells",
      Array.from({ length: 10_000 }, (_, i) => `${i}`.padStart(5)),
      (text) => 1 + ((Number(text) * 7919) % 97),
    ],
    [
      "two languages",
      Array.from({ length: 4_000 }, (_, i) => `${i}`.padStart(40)),
      (text) => (Number(text) < 3_950 ? 1 : 40),
    ],
  ];

  it.each(CASES)("drops as few turns as needed, and measures the long prompt once: %s", async (_, texts, tokensOf) => {
    const { kept, measured, whole } = await fitted(texts, tokensOf);
    expect(kept).toEqual(expected(texts, tokensOf));
    expect(measured.filter((tokens) => tokens > whole / 2)).toHaveLength(1);
    expect(measured.length).toBeLessThanOrEqual(16);
  });
});
