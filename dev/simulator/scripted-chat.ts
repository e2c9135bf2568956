import type { ChatRequest } from "./chat-request.ts";
import { renderChatml } from "./chatml-template.ts";
import { ChatmlTokenizer, IM_END, IM_START, THINK, THINK_END, TOOL_CALL } from "./chatml-tokenizer.ts";
import type { Token } from "./engine.ts";
import type { Speech } from "./generation.ts";
import { admits, underGrammar } from "./grammar.ts";
import { harmonyTokenizer } from "./harmony-tokenizer.ts";
import type { Json } from "./json.ts";
import { fillSchema } from "./schema-filler.ts";
import { chatmlScript } from "./script-language.ts";

let loading: Promise<ChatmlTokenizer> | undefined;

/** The tokenizer of `tiny-qwen3`, loaded on demand. */
export function chatmlTokenizer(): Promise<ChatmlTokenizer> {
  loading ??= harmonyTokenizer().then((base) => new ChatmlTokenizer(base));
  return loading;
}

/** The prompt that `tiny-qwen3` sees. */
export async function chatmlPrompt(
  request: ChatRequest,
  tools: Json | undefined,
  ending: "generation prompt" | "open message" | "closed message",
): Promise<{ text: string; tokens: readonly number[]; ids(): readonly number[] }> {
  const tokenizer = await chatmlTokenizer();
  const text = renderChatml(request.messages, tools, ending, request.enableThinking !== false);
  const tokens = tokenizer.encode(text);
  return { text, tokens, ids: () => tokens };
}

/**
 * The output of `tiny-qwen3` after a prompt: the script in the last user text, or else an echo. A grammar overrides
 * both.
 */
export async function scriptedSpeech(
  request: ChatRequest,
  prompt: string,
): Promise<{ speech: Speech; delayMs: number }> {
  const tokenizer = await chatmlTokenizer();
  const { text, delayMs } = chatmlScript(prompt);
  const thinks = request.enableThinking !== false;
  const thinking = thinks && !thoughtsEnded(tokenizer.encode(prompt));
  const ids = tokenizer.encode(bound(text, request, thinking));
  return {
    speech: {
      tokens: tokensOf(ids, tokenizer),
      eos: IM_END,
      thinking,
      thinkingByRequest: thinks,
      refuses: false,
    },
    delayMs,
  };
}

/** True if the prompt's last message already has its reasoning. */
function thoughtsEnded(ids: readonly number[]): boolean {
  const last = ids.findLast((id) => [IM_START, IM_END, THINK, THINK_END, TOOL_CALL].includes(id));
  return last === THINK_END || last === TOOL_CALL;
}

/** The text in the form that a grammar accepts: JSON or a call after the reasoning. */
function bound(text: string, request: ChatRequest, thinking: boolean): string {
  const end = text.indexOf("</think>");
  if (thinking && end < 0) return text;
  const from = thinking ? end + "</think>".length : 0;
  const said = grammatical(text.slice(from).replace("<|im_end|>", ""), request);
  return said === undefined ? text : `${text.slice(0, from)}${said}<|im_end|>`;
}

/** The content under the request's grammar; `undefined` if the grammar accepts it unchanged. */
function grammatical(written: string, request: ChatRequest): string | undefined {
  const content = written.trim();
  const { toolChoice, tools, format } = request;
  if (toolChoice.kind === "required" || toolChoice.kind === "named") {
    const allowed = toolChoice.kind === "named" ? tools.filter(({ name }) => name === toolChoice.name) : tools;
    return callsAllowed(content, allowed) ? undefined : callOf(allowed[0] ?? tools[0]);
  }
  const strict = toolChoice.kind === "auto" ? tools.find((tool) => tool.strict) : undefined;
  if (strict !== undefined && content.includes("<tool_call>")) {
    return callsAllowed(content.slice(content.indexOf("<tool_call>")), tools) ? undefined : callOf(strict);
  }
  switch (format.kind) {
    case "text":
      return undefined;
    case "choice":
      return format.choice;
    case "grammar":
      return underGrammar(format, written);
    case "json_object":
      return admits({ type: "object" }, content) ? content : "{}";
    case "json_schema":
      return admits(format.schema, content) ? content : JSON.stringify(fillSchema(format.schema));
  }
}

type Tool = ChatRequest["tools"][number];

/** A call of a tool, with arguments that its schema accepts. */
function callOf(tool: Tool | undefined): string {
  const call = { name: tool?.name ?? "", arguments: fillSchema(tool?.parameters ?? {}) };
  return `<tool_call>\n${JSON.stringify(call)}\n</tool_call>`;
}

/**
 * True if the text consists of calls of these tools. The schema of a strict tool binds the arguments. Other arguments
 * are any JSON.
 */
function callsAllowed(text: string, tools: readonly Tool[]): boolean {
  const calls = [...text.matchAll(/<tool_call>\s*\{"name": "([^"]+)", "arguments": (.*?)\}\s*<\/tool_call>/gs)];
  if (!text.startsWith("<tool_call>") || calls.length !== text.split("<tool_call>").length - 1) return false;
  return calls.every(([, name, given = ""]) => {
    const tool = tools.find((each) => each.name === name);
    return tool !== undefined && admits(tool.strict ? (tool.parameters ?? {}) : {}, given);
  });
}

/**
 * The text that each token adds. It waits while the text ends in U+FFFD. Meanwhile the token's text in `logprobs` is
 * empty.
 */
function* tokensOf(ids: readonly number[], tokenizer: ChatmlTokenizer): Generator<Token> {
  let held: number[] = [];
  for (const id of ids) {
    if (tokenizer.isSpecial(id)) {
      yield { id, text: "", name: tokenizer.token(id) };
      continue;
    }
    held.push(id);
    const text = tokenizer.decode(held);
    const whole = !text.endsWith("\ufffd");
    yield { id, text: whole ? text : "", name: whole ? text : "" };
    if (whole) held = [];
  }
  // The end of a script that has none.
  if (ids.at(-1) !== IM_END) yield { id: IM_END, text: "", name: "<|im_end|>" };
}
