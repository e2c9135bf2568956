import type { ChatMessage, ChatRequest, Tool } from "./chat-request.ts";
import { echoOf } from "./echo.ts";
import { type KnownStep, knownJson, knownStep } from "./examples.ts";
import { deterministicWords, type Said, type Speech, say, speech } from "./generation.ts";
import { admits, underGrammar } from "./grammar.ts";
import { Hints } from "./hints.ts";
import { type Json, parseJson } from "./json.ts";
import { fillSchema } from "./schema-filler.ts";
import type { Settings } from "./settings.ts";
import { splitTokens, type Vocabulary } from "./tokenizer.ts";

/**
 * Decides the simulated model's answer. README.md has the rules. `messages` is the body's own list, for
 * `mode=transcript`.
 */
export function answerChat(
  request: ChatRequest,
  model: string,
  settings: Settings,
  messages: Json,
  vocabulary: Vocabulary,
): Speech {
  return speech(saidIn(request, model, settings, messages), vocabulary, {
    continued: request.continueFinalMessage,
    thinks: reasons(request, model, settings),
    ignoreEos: request.ignoreEos,
    letters: settings.letters,
  });
}

function saidIn(request: ChatRequest, model: string, settings: Settings, messages: Json): Said[] {
  if (!request.continueFinalMessage) return freshAnswer(request, request.messages, model, settings, messages);
  const last = request.messages.at(-1);
  const before = request.messages.slice(0, -1);
  // A grammar begins with the first generated token, whatever the prompt ends with.
  if (request.format.kind !== "text") return [content(request, lastTurn(before), settings, messages)];
  const whole = freshAnswer(
    request,
    before,
    model,
    settings,
    Array.isArray(messages) ? messages.slice(0, -1) : messages,
  );
  return last === undefined ? whole : continueAnswer(whole, last);
}

function freshAnswer(
  request: ChatRequest,
  messages: readonly ChatMessage[],
  model: string,
  settings: Settings,
  raw: Json,
): Said[] {
  const turn = lastTurn(messages);
  const said: Said[] = [];
  const known = knownIn(request, turn, settings);
  if (known !== undefined) return knownSaid(known, request, turn.text, mayThink(request, settings));
  if (reasons(request, model, settings)) {
    const start = turn.results.length > 0 ? "The tools have answered." : `The user said: ${turn.text}.`;
    const end = settings.thoughtsEnd ? ".\n" : ".";
    said.push(say("reasoning", `${start} I should answer with effort ${request.effort ?? "default"}${end}`));
  }
  if (settings.refusal) return [...said, say("refusal", "I cannot help with that.")];
  const calls = toolsToCall(request, turn, settings.rounds);
  if (calls.length > 0) {
    const parts = partsInBackticks(
      turn.text,
      calls.map(({ name }) => name),
    );
    for (const [index, tool] of calls.entries()) {
      const part = parts[turn.rounds * calls.length + index] ?? parts.at(-1);
      const given = part === undefined ? undefined : argumentsOf(tool.name, part);
      const tokens = splitTokens(given ?? JSON.stringify(fillSchema(tool.parameters, new Hints(turn.text, tool.name))));
      said.push({ kind: "tool_call", name: tool.name, tokens });
    }
    return said;
  }
  return [...said, content(request, turn, settings, raw)];
}

/** The last user message and the messages after it. */
type Turn = { text: string; results: { name: string; output: string }[]; rounds: number };

function lastTurn(messages: readonly ChatMessage[]): Turn {
  const at = messages.findLastIndex((message) => message.role === "user");
  const after = messages.slice(at + 1);
  const names = new Map(messages.flatMap((message) => message.toolCalls.map((call) => [call.id, call.name] as const)));
  return {
    text: messages[at]?.text ?? "",
    results: after
      .filter((message) => message.role === "tool")
      .map((message) => ({ name: names.get(message.toolCallId ?? "") ?? "tool", output: message.text })),
    rounds: after.filter((message) => message.role === "assistant" && message.toolCalls.length > 0).length,
  };
}

/** The next step of a conversation that the simulator knows, if the request makes no other demands on the answer. */
function knownIn({ format, toolChoice, tools }: ChatRequest, turn: Turn, settings: Settings): KnownStep | undefined {
  const isPlain = format.kind === "text" && (tools.length === 0 || toolChoice.kind === "auto");
  if (!isPlain || settings.words !== undefined || settings.mode === "transcript" || settings.refusal) return undefined;
  const names = tools.map(({ name }) => name);
  return knownStep(turn.text, names, turn.results);
}

/** A known step, without its thought if the request disables reasoning. */
function knownSaid(
  { thought, call, answer = "" }: KnownStep,
  { tools }: ChatRequest,
  text: string,
  thinks: boolean,
): Said[] {
  const said: Said[] = thinks ? [say("reasoning", thought)] : [];
  if (call === undefined) return [...said, say("content", answer)];
  const parameters = tools.find(({ name }) => name === call.name)?.parameters ?? {};
  const given = call.arguments ?? fillSchema(parameters, new Hints(text, call.name));
  return [...said, { kind: "tool_call", name: call.name, tokens: splitTokens(JSON.stringify(given)) }];
}

function mayThink({ enableThinking, effort }: ChatRequest, { reasoning }: Settings): boolean {
  return enableThinking !== false && effort !== "none" && reasoning !== false;
}

function reasons(request: ChatRequest, model: string, settings: Settings): boolean {
  if (!mayThink(request, settings)) return false;
  return model === "simulator-reasoning" || settings.reasoning === true || request.enableThinking === true;
}

function toolsToCall(request: ChatRequest, turn: Turn, rounds: number): Tool[] {
  const { toolChoice, tools } = request;
  const named = /\btools\b/i.test(turn.text) ? tools : tools.filter((tool) => mentions(turn.text, tool.name));
  let calls: Tool[];
  switch (toolChoice.kind) {
    case "none":
      return [];
    case "auto":
      // The schema of an answer governs the whole answer, unless vLLM has a grammar for calls instead.
      if (request.format.kind !== "text" && !tools.some((tool) => tool.strict)) return [];
      // Tool results without a recorded call (a trimmed history) count as a round too.
      calls = Math.max(turn.rounds, Math.min(1, turn.results.length)) >= rounds ? [] : named;
      break;
    case "required":
      calls = named.length > 0 ? named : tools.slice(0, 1);
      break;
    case "named":
      return tools.filter((tool) => tool.name === toolChoice.name).slice(0, 1);
  }
  return request.parallelToolCalls ? calls : calls.slice(0, 1);
}

/** True if the text contains the name as a separate word. */
export function mentions(text: string, name: string): boolean {
  for (let at = text.indexOf(name); at >= 0; at = text.indexOf(name, at + 1)) {
    const inWord = /[\w-]/;
    if (!inWord.test(text[at - 1] ?? " ") && !inWord.test(text[at + name.length] ?? " ")) return true;
  }
  return false;
}

/** The text's parts in backticks, without names of tools. The model sends them to built-in tools. */
export function partsInBackticks(text: string, names: readonly string[]): string[] {
  return [...text.matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? "").filter((part) => !names.includes(part));
}

const ARGUMENT: Record<string, (given: string) => Json> = {
  "browser.search": (given) => ({ query: given }),
  "browser.open": (given) => ({ id: /^-?\d+$/.test(given) ? Number(given) : given }),
  "browser.find": (given) => ({ pattern: given }),
  python: (given) => ({ code: given }),
  file_search: (given) => ({ queries: [given] }),
  "container.exec": (given) => ({ cmd: ["sh", "-c", given] }),
};

/** The arguments for a function whose name stands for a built-in tool: `browser_search`, `file_search`. */
function argumentsOf(name: string, part: string): string | undefined {
  return builtinArguments(name, part) ?? builtinArguments(name.replace("_", "."), part);
}

/**
 * The arguments of a built-in tool, from a part in backticks: JSON is used unchanged, another text becomes the tool's
 * argument. `undefined` for other tools.
 */
export function builtinArguments(name: string, part: string): string | undefined {
  const argument = ARGUMENT[name];
  return argument === undefined || isJsonObject(part) ? argument && part : JSON.stringify(argument(part));
}

function isJsonObject(text: string): boolean {
  try {
    parseJson(text);
    return text.startsWith("{");
  } catch {
    return false;
  }
}

function content(request: ChatRequest, turn: Turn, settings: Settings, raw: Json): Said {
  if (settings.words !== undefined) return { kind: "content", tokens: deterministicWords(settings.words) };
  if (settings.mode === "transcript") return say("content", JSON.stringify(raw));
  switch (request.format.kind) {
    case "text":
      return say("content", plainText(turn));
    case "json_object":
      return say("content", JSON.stringify({ answer: plainText(turn) }));
    case "json_schema": {
      const { schema } = request.format;
      const known = knownJson(turn.text);
      const isKnown = known !== undefined && admits(schema, known);
      return say("content", isKnown ? known : JSON.stringify(fillSchema(schema)));
    }
    case "choice":
      return say("content", request.format.choice);
    case "grammar":
      return say("content", underGrammar(request.format, turn.text));
  }
}

function plainText(turn: Turn): string {
  if (turn.results.length > 0) {
    return turn.results.map((result) => `The tool ${result.name} returned: ${result.output}`).join("\n");
  }
  return echoOf(turn.text);
}

/** The rest of an answer whose beginning is already in the final message. */
function continueAnswer(whole: Said[], last: ChatMessage): Said[] {
  if (last.text.endsWith("</tool_call>")) {
    // The calls after those that the message has as text.
    const made = last.text.split("<tool_call>").length - 1;
    const calls = whole.filter(({ kind }) => kind === "tool_call").slice(made);
    return calls.length > 0 ? calls : [say("content", "")];
  }
  if (last.text !== "") {
    const rest = whole.filter((entry) => entry.kind !== "reasoning");
    return continueKind(rest, "content", last.text);
  }
  return last.reasoning === "" ? whole : continueKind(whole, "reasoning", last.reasoning);
}

function continueKind(said: readonly Said[], kind: "content" | "reasoning", already: string): Said[] {
  const at = said.findIndex((entry) => entry.kind === kind);
  const text = said[at]?.tokens.join("") ?? "";
  const rest = say(kind, at >= 0 && text.startsWith(already) ? text.slice(already.length) : " (continued)");
  return at < 0 ? [rest, ...said] : said.with(at, rest);
}
