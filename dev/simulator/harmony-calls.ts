import { builtinArguments, mentions, partsInBackticks } from "./chat-answer.ts";
import type { HarmonyMessage } from "./harmony-prompt.ts";
import { readLiterals, type Segment } from "./harmony-tokenizer.ts";
import { builtinsOf, functionsOf } from "./harmony-tools.ts";
import type { HarmonyTurn } from "./harmony-turn.ts";
import { Hints } from "./hints.ts";
import type { Json } from "./json.ts";
import { fillSchema } from "./schema-filler.ts";
import type { Settings } from "./settings.ts";
import { boundText, type StructuralTag, type Tag } from "./structural-tag.ts";

/** A tool that the model may call: its full name, its header up to `<|message|>`, and its arguments. */
type Callable = { name: string; header: string; body(round: number): string };

/** The model's next call, header and body without `<|call|>`. `undefined` if it makes none. */
export function nextCall(
  messages: readonly HarmonyMessage[],
  turn: HarmonyTurn,
  tag: StructuralTag | undefined,
  settings: Settings,
): Segment[] | undefined {
  const forced = tag !== undefined && tag.functions.size > 0 && tag.finals.length + tag.others.length === 0;
  const functions = callableFunctions(messages, turn, tag);
  const every = /\btools\b/i.test(turn.text);
  const named = functions.filter(({ name }) => every || mentions(turn.text, name.slice("functions.".length)));
  const wanted = forced
    ? named.length > 0
      ? named
      : functions.slice(0, 1)
    : [...named, ...builtins(messages, turn, tag)];
  const counts = wanted.map(({ name }) => turn.results.filter((result) => result.name === name).length);
  const least = Math.min(...counts);
  const next = wanted[counts.indexOf(least)];
  if (next === undefined || (!forced && least >= settings.rounds)) return undefined;
  return [...readLiterals(next.header), next.body(least)];
}

/** The one of several tags that begins like the model's own output, or else the first. */
export function preferred(tags: readonly Tag[], begin: string): string {
  return tags.some((tag) => tag.begin === begin) ? begin : (tags[0]?.begin ?? begin);
}

function callableFunctions(
  messages: readonly HarmonyMessage[],
  { text }: HarmonyTurn,
  tag: StructuralTag | undefined,
): Callable[] {
  const schemas = new Map<string, Json>(functionsOf(messages).map(({ name, schema }) => [name, schema]));
  const names = tag === undefined ? [...schemas.keys()] : [...tag.functions.keys()];
  return names.map((name) => {
    const tags = tag?.functions.get(name) ?? [];
    return {
      name: `functions.${name}`,
      header: preferred(tags, `<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>`),
      body: () => {
        const hints = new Hints(text, name);
        const bound = boundText(tags.slice(0, 1), hints);
        return bound ?? JSON.stringify(fillSchema(schemas.get(name) ?? { type: "object" }, hints));
      },
    };
  });
}

const BUILTINS: Record<string, (given: string | undefined, text: string) => string> = {
  "browser.search": (given, text) => given ?? JSON.stringify({ query: text }),
  "browser.open": (given) => given ?? '{"id":0}',
  "browser.find": (given) => given ?? '{"pattern":"text"}',
  python: (given) => given ?? "print(2**10)",
  "container.exec": (given) => given ?? '{"cmd":["echo","hello"]}',
};

function builtins(messages: readonly HarmonyMessage[], turn: HarmonyTurn, tag: StructuralTag | undefined): Callable[] {
  const offered = builtinsOf(messages);
  const names = Object.keys(BUILTINS).filter(
    (name) => offered.includes(name.split(".")[0] ?? name) && mentions(turn.text, name) && admits(tag, name),
  );
  const given = partsInBackticks(turn.text, names);
  return names.map((name, index) => ({
    name,
    header: `<|channel|>analysis to=${name} code<|message|>`,
    body: (round) => {
      const part = given[round * names.length + index] ?? given.at(-1);
      return BUILTINS[name]?.(part === undefined ? undefined : asBody(name, part), turn.text) ?? "";
    },
  }));
}

/** The body of a call from a part in backticks. For python the part is the script itself. */
function asBody(name: string, part: string): string {
  return name === "python" ? part : (builtinArguments(name, part) ?? part);
}

function admits(tag: StructuralTag | undefined, name: string): boolean {
  const namespace = name.split(".")[0] ?? name;
  return (
    tag === undefined || tag.others.some(({ begin }) => begin.includes(`to=${namespace}`) || begin.endsWith("to="))
  );
}
