import type { CompletionRequest } from "./completion-request.ts";
import { echoOf } from "./echo.ts";
import { deterministicWords } from "./generation.ts";
import { underGrammar } from "./grammar.ts";
import { nextCall, preferred } from "./harmony-calls.ts";
import { type HarmonyMessage, transcript } from "./harmony-prompt.ts";
import { settingScript, userScript } from "./harmony-script.ts";
import { CALL, CHANNEL, END, MESSAGE, RETURN, readLiterals, type Segment, START } from "./harmony-tokenizer.ts";
import { responseSchemaOf } from "./harmony-tools.ts";
import { type HarmonyTurn, turnOf } from "./harmony-turn.ts";
import type { Json } from "./json.ts";
import { fillSchema } from "./schema-filler.ts";
import type { Settings } from "./settings.ts";
import { boundText, type StructuralTag } from "./structural-tag.ts";

const STRAYED_WORDS = 20_000;

/** The inputs of an answer, besides the messages. */
export type Asked = {
  format: CompletionRequest["format"];
  tag: StructuralTag | undefined;
  settings: Settings;
  /** The format of a structural tag that binds what follows the prompt, where the prompt ends in the model's own output. */
  rest?: Json | undefined;
};

/** The model's output after `<|start|>assistant`. README.md has the rules. */
export function answerHarmony(messages: readonly HarmonyMessage[], asked: Asked): Segment[] {
  const { settings, tag } = asked;
  const constrained = constrainedText(messages, asked);
  if (constrained !== undefined) return [constrained, RETURN];
  const turn = turnOf(messages);
  const reasoning = settings.reasoning === false ? [] : analysis(messages, turn);
  const call = settings.refusal ? undefined : nextCall(messages, turn, tag, settings);
  if (call !== undefined) {
    const preamble: Segment[] = /\bpreamble\b/i.test(turn.text)
      ? [CHANNEL, "commentary", MESSAGE, "Let me look.", END, START, "assistant"]
      : [];
    return [...reasoning, ...preamble, ...call, CALL];
  }
  const begin = preferred(tag?.finals ?? [], "<|channel|>final<|message|>");
  const text = finalText(messages, turn, asked);
  const opening = [...reasoning, ...readLiterals(begin)];
  return settings.stray && tag !== undefined && !tag.excludes && text.includes('"')
    ? [...opening, ...strayed(text)]
    : [...opening, text, RETURN];
}

/**
 * A JSON grammar accepts a special token within a string, like other text: the model writes one, and then does not end.
 */
function strayed(json: string): Segment[] {
  const string = json.lastIndexOf('"', json.length - 3) + 1;
  return [json.slice(0, string), END, START, "assistant", deterministicWords(STRAYED_WORDS).join("")];
}

/** The script that the settings have for this round, if any. */
export function scriptOf(messages: readonly HarmonyMessage[], settings: Settings): Segment[] | undefined {
  const { text, rounds } = turnOf(messages);
  if (settings.harmony !== undefined) return settingScript(settings.harmony, rounds);
  return settings.script === "user" ? userScript(text, rounds) : undefined;
}

/** `structured_outputs` and `response_format` bind the whole output, markup included: the output has no markup. */
function constrainedText(messages: readonly HarmonyMessage[], { format }: Asked): string | undefined {
  switch (format.kind) {
    case "text":
      return undefined;
    case "json_object":
      return JSON.stringify({ answer: plainText(turnOf(messages)) });
    case "json_schema":
      return JSON.stringify(fillSchema(format.schema));
    case "choice":
      return format.choice;
    case "grammar":
      return underGrammar(format, plainText(turnOf(messages)));
  }
}

function analysis(messages: readonly HarmonyMessage[], turn: HarmonyTurn): Segment[] {
  const system = messages.findLast((message) => message.role === "system")?.content ?? "";
  const effort = /^Reasoning: (\w+)$/m.exec(system)?.[1] ?? "default";
  const thought = turn.results.length > 0 ? "The tools have answered." : `The user said: ${turn.text}.`;
  const text = `${thought} I should answer with effort ${effort}.`;
  return [CHANNEL, "analysis", MESSAGE, text, END, START, "assistant"];
}

function finalText(messages: readonly HarmonyMessage[], turn: HarmonyTurn, { settings, tag }: Asked): string {
  if (settings.refusal) return "I cannot help with that.";
  if (settings.words !== undefined) return deterministicWords(settings.words).join("");
  if (settings.mode === "transcript") return transcript(messages);
  const bound = boundText(tag?.finals ?? []);
  if (bound !== undefined) return bound;
  const schema = responseSchemaOf(messages);
  return schema === undefined ? plainText(turn) : JSON.stringify(fillSchema(schema));
}

function plainText({ text, results }: HarmonyTurn): string {
  if (results.length > 0) {
    return results
      .map(({ name, output }) => `The tool ${name.replace(/^functions\./, "")} returned: ${output}`)
      .join("\n");
  }
  return echoOf(text);
}
