import { restOfTag } from "@responses-edge/engines/harmony/rest-of-tag";
import {
  ANY_TEXT,
  answers,
  builtinCalls,
  customCalls,
  type Format,
  functionCalls,
  structuralTag,
} from "@responses-edge/harmony";
import { describe, expect, it } from "vitest";

/** The rest of an output's structural tag after any beginning. */

const GRAMMAR: Format = { type: "grammar", grammar: 'root ::= "go " ("north" | "south")' };
const SCHEMA: Format = { type: "json_schema", json_schema: { type: "object" } };
const NAMESPACE = { name: "browser", description: "", tools: [{ name: "open", description: "", parameters: null }] };
const TAG = structuralTag(
  [
    ...customCalls("functions.walk", GRAMMAR),
    ...builtinCalls(NAMESPACE),
    ...answers({ type: "regex", pattern: "ab*" }),
  ],
  true,
);

function formatAfter(begun: string, tag = TAG): Format | undefined {
  const rest = restOfTag(tag, begun);
  return rest && (JSON.parse(rest.structural_tag) as { format: Format }).format;
}

/** The texts that a format begins with: constants, up to the first text that is free or bound. */
function beginnings(format: Format): string[] {
  switch (format.type) {
    case "const_string":
      return [format.value];
    case "or":
      return format.elements.flatMap(beginnings);
    case "sequence": {
      const [first, ...rest] = format.elements;
      if (!first) return [""];
      return beginnings(first).flatMap((begin) =>
        first.type === "const_string" && begin === "" ? beginnings({ type: "sequence", elements: rest }) : [begin],
      );
    }
    case "tag":
      return [format.begin];
    default:
      return [`(${format.type === "grammar" ? format.grammar.split("\n")[0] : format.type})`];
  }
}

describe("the rest of a structural tag", () => {
  it("in a header is the rest of the headers that begin so", () => {
    expect(formatAfter("")).toBeDefined();
    expect(new Set(beginnings(formatAfter("<|channel|>fi") as Format))).toEqual(
      new Set(["nal<|message|>", "nal <|constrain|>json<|message|>"]),
    );
  });

  it("in a thought is the thought, the messages that may follow, and their forms", () => {
    const rest = formatAfter("<|channel|>analysis<|message|>Let me");
    expect(rest && beginnings(rest)[0]).toBe("(any_text)");
    const following = formatAfter("<|channel|>analysis<|message|>Let me.<|end|><|start|>assistant to=functions.walk");
    expect(following && beginnings(following)).toEqual(["<|channel|>"]);
  });

  it("in a bound text is the rest of its grammar, and the text may end where the grammar does", () => {
    const header = "<|channel|>commentary to=functions.walk<|message|>";
    expect(beginnings(formatAfter(`${header}go `) as Format)[0]).toMatch(/^\(root ::= .*"north" \| "south"/);
    expect(beginnings(formatAfter(`${header}go north`) as Format)).toEqual(["<|end|>", ""]);
  });

  it("is unknown after a beginning that the tag does not have", () => {
    expect(formatAfter("<|channel|>commentary to=functions.walk<|message|>stay")).toBeUndefined();
    expect(formatAfter("<|channel|>final<|message|>b")).toBeUndefined();
    expect(restOfTag({ structural_tag: { type: "structural_tag" } }, "")).toBeUndefined();
  });

  it("after a text of a built-in tool has no grammar of its own", () => {
    const rest = formatAfter("<|channel|>analysis to=browser.open<|message|>{");
    expect(rest && JSON.stringify(rest)).toContain(JSON.stringify(ANY_TEXT));
  });

  it("before the arguments of a function has its whole schema", () => {
    const tag = structuralTag(functionCalls("functions.f", SCHEMA), false);
    const rest = formatAfter("<|channel|>commentary to=functions.f <|constrain|>json<|message|>", tag);
    expect(rest && JSON.stringify(rest)).toContain(JSON.stringify(SCHEMA));
  });
});
