import type { HarmonyMessage, Segment } from "@responses-edge/harmony";
import {
  CALL,
  CHANNEL,
  CONSTRAIN,
  cutChunk,
  decodePieces,
  END,
  type EndReason,
  type HarmonyDelta,
  HarmonyParser,
  MESSAGE,
  PieceReader,
  parseHeader,
  parseHeaderText,
  RETURN,
  resolveRecipient,
  SPECIAL_TOKENS,
  START,
  StrippedMarkersError,
  standardHeader,
} from "@responses-edge/harmony";
import { describe, expect, it } from "vitest";

const FUNCTIONS = new Map([
  ["f", "f"],
  ["get_weather", "get_weather"],
  ["math.sum", "math.sum"],
  ["web_browsing", "web-browsing"],
]);

interface Settings {
  functions?: ReadonlyMap<string, string>;
  builtins?: ReadonlySet<string>;
  expectsJson?: boolean;
  reason?: EndReason;
}

/** Output in one text, its literals being special tokens, as segments. */
function segmentsOf(output: string): Segment[] {
  return output
    .split(/(<\|[a-z]+\|>)/)
    .filter((part) => part !== "")
    .map((part) => new Map<string, number>(Object.entries(SPECIAL_TOKENS)).get(part) ?? part);
}

function deltasOf(output: string | Segment[], settings: Settings = {}) {
  const { functions = FUNCTIONS, builtins = new Set(), expectsJson, reason = "stop" } = settings;
  const parser = new HarmonyParser({ functions, builtins, expectsJson });
  const deltas: HarmonyDelta[] = [];
  for (const segment of typeof output === "string" ? segmentsOf(output) : output) parser.push([segment], 1, deltas);
  parser.end(reason, deltas);
  return { deltas, parser };
}

/** The output as a reader sees it: a line per item, `…` at the end of one that is unfinished; and the tools' calls. */
function seen(output: string | Segment[], settings: Settings = {}): string[] {
  const lines: string[] = [];
  let line = "";
  for (const delta of deltasOf(output, settings).deltas) {
    if (delta.kind === "reasoning") line = (line || "reasoning: ") + delta.text;
    else if (delta.kind === "text") line = (line || `${delta.phase}: `) + delta.text;
    else if (delta.kind === "tool_call") line += delta.name === undefined ? delta.arguments : `call ${delta.name}: `;
    else if (delta.kind === "unserved_call") {
      lines.push(`tool ${delta.message.recipient} on ${delta.message.channel}: ${textOf(delta.message)}`);
    } else if (delta.kind === "item_done") {
      lines.push(line);
      line = "";
    } else if (delta.kind === "message" && line !== "") {
      lines.push(`${line}…`);
      line = "";
    }
  }
  return lines;
}

function messagesOf(output: string | Segment[], settings: Settings = {}): HarmonyMessage[] {
  return deltasOf(output, settings).deltas.flatMap((delta) =>
    delta.kind === "message" ? [delta.message as HarmonyMessage] : [],
  );
}

function textOf(message: HarmonyMessage): string {
  return message.content.map((part) => (part.type === "text" ? part.text : "")).join("");
}

const message = (fields: Omit<HarmonyMessage, "role" | "content">, text: string): HarmonyMessage => ({
  role: "assistant",
  ...fields,
  content: [{ type: "text", text }],
});

const browser = new Set(["browser.search", "browser.open", "browser.find"]);
const python = new Set(["python"]);
const noFunctions = new Map<string, string>();

describe("HarmonyParser", () => {
  describe("the regular forms", () => {
    it("reads reasoning, a preamble, a call and an answer", () => {
      const output =
        "<|channel|>analysis<|message|>Think.<|end|>" +
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>" +
        "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>" +
        "<|start|>assistant<|channel|>final<|message|>Done.<|return|>";
      expect(seen(output)).toEqual(["reasoning: Think.", "commentary: I look.", "call f: {}", "final_answer: Done."]);
      expect(messagesOf(output)).toEqual([
        message({ channel: "analysis" }, "Think."),
        message({ channel: "commentary" }, "I look."),
        message({ channel: "commentary", recipient: "functions.f", content_type: "<|constrain|>json" }, "{}"),
        message({ channel: "final" }, "Done."),
      ]);
    });

    it("emits each delta with the push that brings it, and names the call before its arguments", () => {
      const parser = new HarmonyParser({ functions: FUNCTIONS, builtins: new Set() });
      const pushed = (...pieces: Segment[]) => {
        const out: HarmonyDelta[] = [];
        parser.push(pieces, pieces.length, out);
        return out;
      };
      expect(pushed(CHANNEL, "analysis", MESSAGE)).toEqual([]);
      expect(pushed("a", "b")).toEqual([{ kind: "reasoning", text: "ab" }]);
      expect(pushed("c", END, START)).toEqual([
        { kind: "reasoning", text: "c" },
        { kind: "item_done" },
        { kind: "message", index: 0, itemKind: "reasoning", message: message({ channel: "analysis" }, "abc") },
      ]);
      expect(pushed("assistant", CHANNEL, "commentary to=functions.f ", CONSTRAIN, "json")).toEqual([]);
      expect(pushed(MESSAGE)).toEqual([{ kind: "tool_call", index: 0, name: "f", arguments: "" }]);
      expect(pushed("{}")).toEqual([{ kind: "tool_call", index: 0, arguments: "{}" }]);
      expect(pushed(CALL)).toMatchObject([{ kind: "item_done" }, { kind: "message", index: 1, itemKind: "call" }]);
    });

    it("keeps a regular header only where the fields do not give it", () => {
      const roleSection = " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>";
      expect(messagesOf(roleSection)[0]?.header).toBe(
        "assistant to=functions.f<|channel|>commentary <|constrain|>json",
      );
      const unspaced = "<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>";
      expect(messagesOf(unspaced)[0]?.header).toBe("assistant<|channel|>commentary to=functions.f<|constrain|>json");
      const malformed = "<|channel|>commentary to=functions.f write: it<|message|>{}<|call|>";
      expect(messagesOf(malformed)).toEqual([message({ channel: "commentary", recipient: "functions.f" }, "{}")]);
    });

    it("counts the tokens of reasoning without headers and markers", () => {
      const output =
        "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>";
      expect(deltasOf(output).parser.reasoningTokens).toBe(1);
      const parser = new HarmonyParser({ functions: FUNCTIONS, builtins: new Set() });
      parser.push(segmentsOf(output), 30, []);
      // 22 of them are text, of which "Think." is a good quarter.
      expect(parser.reasoningTokens).toBeGreaterThan(3);
      expect(parser.reasoningTokens).toBeLessThan(8);
    });
  });

  describe("malformed output", () => {
    const call = ["call f: {}"];

    it("1: reads a recipient after the channel", () => {
      expect(seen("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>")).toEqual(call);
    });

    it("2: reads a recipient in the role's section", () => {
      expect(seen(" to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>")).toEqual(call);
    });

    it("3: needs no space before <|constrain|>", () => {
      expect(seen("<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>")).toEqual(call);
    });

    it("4: reads a content type without <|constrain|>", () => {
      const [json] = messagesOf("<|channel|>commentary to=functions.f json<|message|>{}<|call|>");
      expect(json).toMatchObject({ recipient: "functions.f", content_type: "json" });
      const [code] = messagesOf("<|channel|>analysis to=python code<|message|>1<|call|>", { builtins: python });
      expect(code).toMatchObject({ recipient: "python", content_type: "code" });
    });

    it("5: needs no content type", () => {
      expect(seen("<|channel|>commentary to=functions.f<|message|>{}<|call|>")).toEqual(call);
    });

    it("6: takes a function call on analysis for one", () => {
      expect(seen("<|channel|>analysis to=functions.f json<|message|>{}<|call|>")).toEqual(call);
    });

    it("7: takes a built-in tool on commentary for one", () => {
      expect(seen("<|channel|>commentary to=browser.search<|message|>{}<|call|>", { builtins: browser })).toEqual([
        "call browser.search: {}",
      ]);
    });

    it("8: takes a bare name for a function iff it is declared", () => {
      expect(seen("<|channel|>commentary to=get_weather<|message|>{}<|call|>")).toEqual(["call get_weather: {}"]);
      expect(seen("<|channel|>commentary to=math.sum<|message|>{}<|call|>")).toEqual(["call math.sum: {}"]);
      expect(seen("<|channel|>commentary to=unknown<|message|>{}<|call|>")).toEqual(["tool unknown on commentary: {}"]);
      expect(messagesOf("<|channel|>commentary to=get_weather<|message|>{}<|call|>")).toEqual([
        message({ channel: "commentary", recipient: "functions.get_weather" }, "{}"),
      ]);
    });

    it("9: takes functions.browser.search and functions.python for built-in tools unless declared", () => {
      const output = "<|channel|>commentary to=functions.python<|message|>1<|call|>";
      expect(seen(output, { builtins: python })).toEqual(["call python: 1"]);
      expect(seen(output, { builtins: python, functions: new Map([["python", "python"]]) })).toEqual([
        "call python: 1",
      ]);
      expect(
        seen("<|channel|>analysis to=functions.browser.search<|message|>{}<|call|>", { builtins: browser }),
      ).toEqual(["call browser.search: {}"]);
    });

    it("10: takes a word without to= for a recipient only if it is a known tool", () => {
      expect(seen("<|channel|>commentary functions.f<|message|>{}<|call|>")).toEqual(call);
      expect(seen("<|channel|>commentary functions.g<|message|>Hm.<|end|>")).toEqual(["commentary: Hm."]);
    });

    it("11: takes a content type on final for no recipient", () => {
      for (const header of ["final <|constrain|>json", "final json"]) {
        expect(seen(`<|channel|>${header}<|message|>{}<|return|>`)).toEqual(["final_answer: {}"]);
      }
    });

    it("12: ends a recipient where a marker begins", () => {
      const output = "<|channel|>analysis to=functions.f<|channel|>commentary json<|message|>{}<|call|>";
      expect(messagesOf(output)).toEqual([
        message({ channel: "commentary", recipient: "functions.f", content_type: "json" }, "{}"),
      ]);
      const asText: Segment[] = [CHANNEL, "commentary to=functions.f<|channel|>commentary", MESSAGE, "{}", CALL];
      expect(seen(asText)).toEqual(call);
    });

    it("13: goes by the second of two channels", () => {
      expect(seen("<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|>")).toEqual([
        "reasoning: Hm.",
      ]);
    });

    it("14: reads <|constrain|> in the place of <|channel|>", () => {
      expect(messagesOf("<|constrain|>analysis code<|message|>1<|end|>")).toEqual([
        message({ channel: "analysis", content_type: "code" }, "1"),
      ]);
      const output = "<|constrain|>commentary to=assistant <|constrain|>analysis to=python code<|message|>1<|end|>";
      expect(messagesOf(output, { builtins: python })).toEqual([
        message({ channel: "commentary", content_type: "code" }, "1"),
      ]);
    });

    it("15: reads a content type among doubled markers", () => {
      for (const junk of ["<|constrain|><|constrain|>code", "<|constrain|><|channel|><|constrain|>code"]) {
        const [first] = messagesOf(`<|channel|>analysis to=python ${junk}<|message|>1<|call|>`, { builtins: python });
        expect(first).toMatchObject({ channel: "analysis", recipient: "python", content_type: "<|constrain|>code" });
      }
      const spaced = messagesOf("<|channel|>final <|constrain|> json<|message|>{}<|return|>");
      expect(spaced).toEqual([message({ channel: "final", content_type: "<|constrain|>json" }, "{}")]);
    });

    it("16: ignores a content type that is prose", () => {
      expect(seen("<|channel|>commentary to=functions.f <|constrain|>response<|message|>{}<|call|>")).toEqual(call);
      expect(seen("<|channel|>commentary to=functions.f write: edit file…<|message|>{}<|call|>")).toEqual(call);
      expect(seen("<|channel|>final <|constrain|>response<|message|>Hi<|return|>")).toEqual(["final_answer: Hi"]);
    });

    it("17: reads a JSON answer whose <|message|> is missing", () => {
      for (const marker of ["<|channel|>", ""]) {
        expect(seen(`${marker}final {"answer":"hi"}<|return|>`)).toEqual(['final_answer: {"answer":"hi"}']);
      }
      expect(seen('<|channel|>final <|constrain|>json{"answer":"hi"}<|return|>')).toEqual([
        'final_answer: {"answer":"hi"}',
      ]);
      expect(seen('<|channel|>commentary to=functions.f json{"a":1}<|call|>')).toEqual(['call f: {"a":1}']);
    });

    it("18: hides a refusal whose <|message|> is missing", () => {
      for (const header of ["", "analysis ", "<|channel|>analysis "]) {
        expect(seen(`${header}I must refuse<|end|>`)).toEqual(["reasoning: I must refuse"]);
      }
    });

    it("19: recovers the same in a later message", () => {
      const first = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
      expect(seen(`${first}<|channel|>final {"a":1}<|return|>`)).toEqual(["reasoning: Hm.", 'final_answer: {"a":1}']);
      expect(seen(`${first}I must refuse<|end|>`)).toEqual(["reasoning: Hm.", "reasoning: I must refuse"]);
    });

    it("20: reads a channel with text glued to it", () => {
      expect(seen("<|channel|>final__HANDOFF__<|return|>")).toEqual(["final_answer: __HANDOFF__"]);
      expect(seen("<|channel|>finalx<|message|>Hi<|return|>")).toEqual(["final_answer: Hi"]);
    });

    it("21: takes comment* for commentary, and hides other unknown channels", () => {
      for (const channel of ["comment", "––commentary"]) {
        expect(seen(`<|channel|>${channel}<|message|>Hi<|end|>`)).toEqual(["commentary: Hi"]);
      }
      expect(seen("<|channel|>thoughts<|message|>Hi<|end|>")).toEqual(["reasoning: Hi"]);
      expect(seen("<|channel|>thoughts to=functions.f json<|message|>{}<|call|>")).toEqual(call);
    });

    it("22: hides garbage, and goes on", () => {
      const answer = "<|start|>assistant<|channel|>final<|message|>4<|return|>";
      expect(seen(`<|channel|>??<|end|>${answer}`)).toEqual(["reasoning: ??", "final_answer: 4"]);
      expect(seen(`<|channel|>commentary?commentary?We need…<|end|>${answer}`)).toEqual([
        "reasoning: commentary?commentary?We need…",
        "final_answer: 4",
      ]);
    });

    it("23: takes an empty channel for analysis if more follows, else for final", () => {
      expect(seen("<|channel|><|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>")).toEqual([
        "reasoning: Hm.",
        "final_answer: 4",
      ]);
      expect(seen("<|channel|><|message|>4<|return|>")).toEqual(["final_answer: 4"]);
      expect(seen("<|channel|><|message|>4", { reason: "length" })).toEqual(["reasoning: 4…"]);
    });

    it("24: takes output without markup for the answer", () => {
      expect(seen("Hello<|return|>")).toEqual(["final_answer: Hello"]);
      expect(seen("Hello")).toEqual(["final_answer: Hello"]);
      expect(seen("<|message|>b<|return|>")).toEqual(["final_answer: b"]);
      const long = "Hello, world. ".repeat(100);
      expect(seen([...(long.match(/.{1,5}/g) ?? []), RETURN])).toEqual([`final_answer: ${long}`]);
    });

    it("25: ends a message where the next begins, <|end|> being missing", () => {
      const answer = "<|channel|>final<|message|>4<|return|>";
      for (const next of ["<|start|>assistant", ""]) {
        expect(seen(`<|channel|>analysis<|message|>Hm.${next}${answer}`)).toEqual([
          "reasoning: Hm.",
          "final_answer: 4",
        ]);
      }
    });

    it("26: drops text between messages, unless it is the JSON that was asked for", () => {
      const thought = "<|channel|>analysis<|message|>Hm.<|end|>";
      const answer = "<|start|>assistant<|channel|>final<|message|>4<|return|>";
      expect(seen(`${thought}364${answer}`)).toEqual(["reasoning: Hm.", "final_answer: 4"]);
      expect(seen(`${thought}{"a":1}<|return|>`)).toEqual(["reasoning: Hm."]);
      const expectsJson = true;
      expect(seen(`${thought}{"a":1}<|return|>`, { expectsJson })).toEqual(["reasoning: Hm.", 'final_answer: {"a":1}']);
      expect(seen(`${thought}{"a":1}`, { expectsJson })).toEqual(["reasoning: Hm.", 'final_answer: {"a":1}']);
      expect(seen(`${thought}{"a":`, { expectsJson, reason: "length" })).toEqual([
        "reasoning: Hm.",
        'final_answer: {"a":…',
      ]);
      expect(seen(`${thought}{"a":1}${answer}`, { expectsJson })).toEqual(["reasoning: Hm.", "final_answer: 4"]);
      expect(seen(`${thought}364<|return|>`, { expectsJson })).toEqual(["reasoning: Hm."]);
      expect(seen(`${thought}${answer}{"a":1}`, { expectsJson })).toEqual(["reasoning: Hm.", "final_answer: 4"]);
    });

    it("27: ignores doubled ends", () => {
      expect(seen("<|channel|>final<|message|>4<|end|><|return|><|return|><|call|><|end|>")).toEqual([
        "final_answer: 4",
      ]);
    });

    it("28: reads a doubled start or role", () => {
      const thought = "<|channel|>analysis<|message|>Hm.<|end|>";
      const answer = "<|channel|>final<|message|>4<|return|>";
      for (const start of ["<|start|><|start|>assistant", "<|start|>assistantassistant", "<|start|>"]) {
        expect(seen(`${thought}${start}${answer}`)).toEqual(["reasoning: Hm.", "final_answer: 4"]);
      }
      expect(seen(`assistant${answer}`)).toEqual(["final_answer: 4"]);
    });

    it("29: stops where the model speaks for a user, system or developer", () => {
      for (const role of ["user", "system", "developer"]) {
        const output = `<|channel|>final<|message|>4<|end|><|start|>${role}<|message|>More?<|end|>`;
        expect(seen(`${output}<|start|>assistant<|channel|>final<|message|>5<|return|>`)).toEqual(["final_answer: 4"]);
        expect(deltasOf(output).parser.stopped).toBe(true);
        expect(messagesOf(output)).toHaveLength(1);
      }
    });

    it("30: stops where the model makes a tool's result up", () => {
      const made = "<|channel|>commentary to=functions.f<|message|>{}<|call|>";
      for (const author of ["functions.f to=assistant", "f to=assistant", "tool", "functions.f", "f"]) {
        const output = `${made}<|start|>${author}<|channel|>commentary<|message|>{}<|end|>`;
        expect(seen(output)).toEqual(call);
        expect(deltasOf(output).parser.stopped).toBe(true);
      }
    });

    it("31: recognises a call with any end", () => {
      for (const end of ["<|end|>", "<|return|>", "<|call|>", ""]) {
        expect(seen(`<|channel|>commentary to=functions.f<|message|>{}${end}`)).toEqual(call);
      }
    });

    it("32: reads several calls", () => {
      const header = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>";
      const { deltas } = deltasOf(`${header}{"a":1}<|call|><|start|>assistant${header}{"a":2}<|call|>`);
      expect(deltas.filter((delta) => delta.kind === "tool_call")).toEqual([
        { kind: "tool_call", index: 0, name: "f", arguments: "" },
        { kind: "tool_call", index: 0, arguments: '{"a":1}' },
        { kind: "tool_call", index: 1, name: "f", arguments: "" },
        { kind: "tool_call", index: 1, arguments: '{"a":2}' },
      ]);
    });

    it("33: leaves a message that was cut off unfinished", () => {
      const reason = "length";
      expect(seen("<|channel|>analysis<|message|>Hm", { reason })).toEqual(["reasoning: Hm…"]);
      expect(seen("<|channel|>final<|message|>4", { reason })).toEqual(["final_answer: 4…"]);
      expect(seen('<|channel|>commentary to=functions.f<|message|>{"a', { reason })).toEqual(['call f: {"a…']);
      expect(seen("<|channel|>commentary to=functions.f", { reason })).toEqual([]);
      expect(seen("<|channel|>fin", { reason })).toEqual([]);
      expect(seen("<|channel|>analysis to=python<|message|>1", { reason, builtins: python })).toEqual([
        "call python: 1…",
      ]);
      expect(messagesOf('<|channel|>commentary to=functions.f<|message|>{"a', { reason })).toHaveLength(1);
    });

    it("34: passes malformed arguments on as they are", () => {
      for (const body of ['{"a":', '{"a":1} and so', '{"a":1}{"a":2}', '{"a":"x\ny"}']) {
        expect(seen(["", CHANNEL, "commentary to=functions.f", MESSAGE, body, CALL])).toEqual([`call f: ${body}`]);
      }
    });

    it("35: reads a call without arguments", () => {
      expect(seen("<|channel|>commentary to=functions.f<|message|><|call|>")).toEqual(["call f: "]);
      expect(seen("<|channel|>commentary to=functions.f <|constrain|>json<|call|>")).toEqual(["call f: "]);
    });

    it("36: resolves python.exec", () => {
      const tools = { functions: noFunctions, builtins: new Set(["python", "container.exec"]) };
      expect(resolveRecipient("python.exec", tools)).toEqual({ kind: "builtin", name: "python" });
      expect(resolveRecipient("container.exec code", tools)).toEqual({ kind: "builtin", name: "container.exec" });
      expect(messagesOf("<|channel|>analysis to=container.exec code<|message|>{}<|call|>", tools)).toEqual([
        message({ channel: "analysis", recipient: "container.exec", content_type: "code" }, "{}"),
      ]);
    });

    it("37: shows nothing of a call to a tool that was not offered", () => {
      expect(seen("<|channel|>commentary to=repo_browser.open_file<|message|>{}<|call|>")).toEqual([
        "tool repo_browser.open_file on commentary: {}",
      ]);
      expect(seen("<|channel|>analysis to=python code<|message|>1<|call|>")).toEqual(["tool python on analysis: 1"]);
      const undeclared = "<|channel|>commentary to=functions.x<|message|>{}<|call|>";
      expect(seen(undeclared)).toEqual(["tool functions.x on commentary: {}"]);
      expect(seen(undeclared, { functions: noFunctions })).toEqual(["tool functions.x on commentary: {}"]);
      expect(deltasOf(undeclared, { functions: noFunctions }).deltas.map((delta) => delta.kind)).toEqual([
        "message",
        "unserved_call",
      ]);
    });

    it("38: takes assistant, user and all for no recipient", () => {
      for (const to of ["assistant", "user", "all"]) {
        expect(seen(`<|channel|>final to=${to}<|message|>4<|return|>`)).toEqual(["final_answer: 4"]);
        expect(messagesOf(`<|channel|>final to=${to}<|message|>4<|return|>`)).toEqual([
          message({ channel: "final" }, "4"),
        ]);
      }
    });

    it("39: drops special tokens in content, and keeps their literals", () => {
      const output = [CHANNEL, "final", MESSAGE, "a", CONSTRAIN, "b", 200_013, 199_998, "<|end|>", "c", RETURN];
      expect(seen(output)).toEqual(["final_answer: ab<|end|>c"]);
      expect(deltasOf(output).parser.dropped).toBe(3);
    });

    it("40: stops at <|endoftext|>", () => {
      const output = "<|channel|>final<|message|>4<|endoftext|>";
      expect(seen(`${output}<|start|>assistant<|channel|>final<|message|>5<|return|>`)).toEqual(["final_answer: 4"]);
      expect(deltasOf(output).parser.stopped).toBe(true);
    });

    it("41: holds a character that tokens cut in two", () => {
      const reader = new PieceReader();
      reader.useTokenizer(BYTES);
      const smile = [...new TextEncoder().encode("😀")];
      expect(reader.read({ text: "", ids: smile.slice(0, 2) })).toEqual([]);
      expect(reader.read({ text: "😀", ids: smile.slice(2) })).toEqual(["😀"]);
      expect(reader.read({ text: "", ids: [0xf0, 0x9f, END] })).toEqual(["\ufffd", END]);
      expect(reader.read({ text: "", ids: [0xf0] })).toEqual([]);
      expect(reader.flush()).toEqual(["\ufffd"]);
    });

    it("42: refuses output with stripped markers, and does not guess", () => {
      for (const thought of ["We need…", "We need… ".repeat(100)]) {
        expect(() => deltasOf(`analysis${thought}assistantfinalfour`)).toThrow(StrippedMarkersError);
        expect(seen(`analysis${thought}assistantfinalfour<|return|>`)).toEqual([
          `reasoning: ${thought}assistantfinalfour`,
        ]);
      }
      expect(seen("Write analysisWe…assistantfinalfour")).toEqual([
        "final_answer: Write analysisWe…assistantfinalfour",
      ]);
    });

    it("43: gives a function the caller's name for it", () => {
      const output = "<|channel|>commentary to=functions.web_browsing<|message|>{}<|call|>";
      expect(seen(output)).toEqual(["call web-browsing: {}"]);
      expect(messagesOf(output)[0]?.recipient).toBe("functions.web_browsing");
    });
  });

  describe("other missing markers", () => {
    it("reads a header without <|start|> or <|channel|>", () => {
      const thought = "<|channel|>analysis<|message|>Hm.<|end|>";
      expect(seen(`${thought}assistantanalysis<|message|>More`)).toEqual(["reasoning: Hm.", "reasoning: More"]);
      expect(seen(`${thought}assistant<|channel|>final<|message|>4`)).toEqual(["reasoning: Hm.", "final_answer: 4"]);
      expect(deltasOf(`${thought}user<|message|>Hi`).parser.stopped).toBe(true);
    });

    it("shows nothing more of an answer after a second <|message|> until its end", () => {
      expect(seen("<|channel|>final<|message|><|message|>4<|return|>")).toEqual(["final_answer: 4"]);
      expect(seen("<|channel|>final<|message|>4<|message|>Hm.<|end|>")).toEqual(["final_answer: 4", "reasoning: Hm."]);
    });
  });

  describe("a header that never ends", () => {
    const words = (count: number) => Array.from({ length: count }, () => "word ");

    it("becomes content, and streams", () => {
      const { deltas } = deltasOf([CHANNEL, "analysis ", ...words(200), END]);
      expect(deltas.filter((delta) => delta.kind === "reasoning").length).toBeGreaterThan(100);
      expect(seen([CHANNEL, "analysis ", ...words(200), END])).toEqual([`reasoning: ${"word ".repeat(200)}`]);
      expect(seen([CHANNEL, "final ", ...words(200), RETURN])).toEqual([`final_answer: ${"word ".repeat(200)}`]);
    });

    it("is hidden on commentary, or without a channel if more follows", () => {
      expect(seen([CHANNEL, "commentary ", ...words(200), END])).toEqual([`reasoning: ${"word ".repeat(200)}`]);
      expect(seen([...words(200), END])).toEqual([`reasoning: ${"word ".repeat(200)}`]);
    });

    it("is a call if JSON follows the recipient", () => {
      const json = JSON.stringify({ text: "word ".repeat(100) });
      expect(seen([CHANNEL, "commentary to=functions.f ", json, CALL])).toEqual([`call f: ${json}`]);
    });
  });
});

describe("parseHeader", () => {
  it.each([
    ["assistant<|channel|>final", { channel: "final" }],
    ["assistant<|channel|>analysis to=python code", { channel: "analysis", recipient: "python", content_type: "code" }],
    [
      "assistant to=functions.f<|channel|>commentary <|constrain|>json",
      { channel: "commentary", recipient: "functions.f", content_type: "<|constrain|>json" },
    ],
  ])("finds %s clean", (header, fields) => {
    expect(parseHeaderText(header)).toEqual({ role: "assistant", clean: true, rest: "", ...fields });
  });

  it.each([
    "assistant",
    "user<|channel|>final",
    "assistant<|channel|>final x",
    "assistant<|channel|>final<|end|>",
    "assistant<|channel|>final<|message|>Hi<|end|><|start|>system",
    "assistant to=a<|channel|>commentary to=b",
    "assistant<|channel|><|channel|>final",
    "assistant<|channel|>final <|reserved_200013|>",
    "assistant<|channel|>final\n",
    " assistant<|channel|>final",
    "",
  ])("does not find %j clean", (header) => {
    expect(parseHeaderText(header).clean).toBe(false);
  });

  it("does not take a literal for a marker", () => {
    expect(parseHeader(["assistant<|channel|>final"]).clean).toBe(false);
    expect(parseHeader(["assistant", CHANNEL, "final<|constrain|>json"]).clean).toBe(false);
    expect(parseHeader(["assistant", CHANNEL, "final", CONSTRAIN, "json"]).clean).toBe(true);
  });

  it("agrees with the header that the fields give", () => {
    const header = "assistant<|channel|>commentary to=functions.f <|constrain|>json";
    const { clean: _clean, rest: _rest, ...fields } = parseHeaderText(header);
    expect(standardHeader({ ...fields, content: [] })).toBe(header);
    expect(
      standardHeader({ role: "tool", name: "python", recipient: "assistant", channel: "analysis", content: [] }),
    ).toBe("python<|channel|>analysis to=assistant");
  });
});

/** A tokenizer whose tokens are bytes. */
const BYTES = { bytes: (id: number) => new Uint8Array([id]) };

const ids = (text: string) => [...new TextEncoder().encode(text)];

describe("reading chunks", () => {
  it("takes text for text where no id is special", () => {
    expect(cutChunk("a<|end|>b", ids("a<|end|>b"))).toEqual(["a<|end|>b"]);
    expect(cutChunk("", [])).toEqual([]);
  });

  it("cuts at the literals where they are as many as the ids", () => {
    expect(cutChunk("a<|end|><|start|>b", [...ids("a"), END, START, ...ids("b")])).toEqual(["a", END, START, "b"]);
    expect(cutChunk("<|reserved_200013|>", [200_013])).toEqual([200_013]);
  });

  it("adds a stop token that is not in the text", () => {
    expect(cutChunk("a", [...ids("a"), RETURN])).toEqual(["a", RETURN]);
    expect(cutChunk("", [CALL])).toEqual([CALL]);
    expect(cutChunk("<|call|>", [CALL])).toEqual([CALL]);
  });

  it("needs a tokenizer where a literal may be text", () => {
    const reader = new PieceReader();
    const chunk = { text: "a<|end|>b<|end|>", ids: [...ids("a<|end|>b"), END] };
    expect(reader.read(chunk)).toBeUndefined();
    expect(reader.needsTokenizer).toBe(true);
    reader.useTokenizer(BYTES);
    expect(reader.needsTokenizer).toBe(false);
    expect(reader.read(chunk)).toEqual(["a<|end|>b", END]);
    expect(cutChunk("a<|return|>", [...ids("a<|return|>"), RETURN])).toBeUndefined();
    expect(cutChunk("ab", [...ids("a"), END, ...ids("b")])).toBeUndefined();
    expect(decodePieces([...ids("a"), END, ...ids("bä").slice(0, 2)], BYTES)).toEqual(["a", END, "b", "\ufffd"]);
  });

  it("gives text that vLLM held back, once, with a tokenizer", () => {
    const reader = new PieceReader();
    expect(reader.read({ text: "x", ids: [...ids("xä").slice(0, 2)] })).toEqual(["x"]);
    const chunk = { text: "ä<|end|><|end|>", ids: [...ids("ä").slice(1), ...ids("<|end|>"), END] };
    expect(reader.read(chunk)).toBeUndefined();
    reader.useTokenizer(BYTES);
    expect(reader.read(chunk)).toEqual(["ä<|end|>", END]);
  });

  it("goes by literals where there are no ids, and holds the beginning of one", () => {
    const reader = new PieceReader();
    expect(reader.read({ text: "a<|chan", ids: undefined })).toEqual(["a"]);
    expect(reader.read({ text: "nel|>b <", ids: undefined })).toEqual([CHANNEL, "b "]);
    expect(reader.read({ text: "3 <|", ids: undefined })).toEqual(["<3 "]);
    expect(reader.read({ text: "x <|reserved_2000", ids: undefined })).toEqual(["<|x "]);
    expect(reader.read({ text: "13|><|e", ids: undefined })).toEqual([200_013]);
    expect(reader.flush()).toEqual(["<|e"]);
    expect(reader.flush()).toEqual([]);
  });

  it("takes no literal for a marker in a chunk without ids, if the server gives ids", () => {
    const reader = new PieceReader();
    reader.read({ text: "a", ids: ids("a") });
    expect(reader.read({ text: "<|end|>", ids: undefined })).toEqual(["<|end|>"]);
    expect(reader.read({ text: "", ids: undefined })).toEqual([]);
  });
});
