/** A scripted model's output after a prompt, and the time of each of its tokens. */
export type Script = { text: string; delayMs: number };

const SCRIPT = /SCRIPT\[\[(.*?)\]\]/s;
const THOUGHTS_END = "</think>";
const FINAL = "<|channel|>final<|message|>";

/** The output of `tiny-qwen3` after a ChatML prompt. README.md has the language. */
export function chatmlScript(prompt: string): Script {
  const users = [...prompt.matchAll(/<\|im_start\|>user\n(.*?)<\|im_end\|>/gs)].map((match) => match[1] ?? "");
  const user = users.findLast((text) => !text.startsWith("<tool_response>")) ?? prompt;
  const tail = after(prompt, "<|im_start|>assistant\n");
  const results = users.at(-1)?.startsWith("<tool_response>") ? (users.at(-1) ?? "") : "";
  const output = [...results.matchAll(/<tool_response>\n(.*?)\n<\/tool_response>/gs)].at(-1)?.[1]?.trim();
  const judged = verdict(prompt, user);
  const said = scripted(user, judged === undefined ? output : undefined, judged);
  if (said.script !== undefined) return { text: restOfChatml(said.script, tail), delayMs: said.delayMs };
  let text = `<think>\nThe user said something.\n</think>\n\n${said.answer}<|im_end|>`;
  if (tail.startsWith("<think>\n\n</think>\n\n")) text = `<think>\n\n</think>\n\n${said.answer}<|im_end|>`;
  else if (user.includes("NOTHINK")) text = `${said.answer}<|im_end|>`;
  return { text: restOfChatml(text, tail), delayMs: said.delayMs };
}

/** The output of `tiny-gpt-oss` after a Harmony prompt. */
export function harmonyScript(prompt: string): Script {
  const last = Math.max(0, prompt.lastIndexOf("<|start|>user<|message|>"));
  const turn = prompt.slice(last);
  const user =
    turn.slice(turn.startsWith("<|start|>") ? "<|start|>user<|message|>".length : 0).split("<|end|>")[0] ?? "";
  const closed = [
    ...prompt.matchAll(
      /<\|start\|>(?:user|[A-Za-z_]\w*\.[^<]*|python[^<]*|browser[^<]*|container[^<]*)(?:<\|channel\|>[^<]*)?<\|message\|>.*?<\|end\|>/gs,
    ),
  ].at(-1);
  const rest = closed === undefined ? "" : prompt.slice(closed.index + closed[0].length);
  const tail = rest.startsWith("<|start|>assistant") ? rest.slice("<|start|>assistant".length) : "";
  // A tool message's header may have either order.
  const result = [
    ...turn.matchAll(
      /<\|start\|>(?:[A-Za-z_]\w*\.|python|browser|container)[^<]*?(?: to=assistant)?(?:<\|channel\|>\w+(?: to=assistant)?)?<\|message\|>(.*?)<\|end\|>/gs,
    ),
  ].at(-1);
  const said = scripted(user, result?.[1]);
  const text =
    said.script ??
    `<|channel|>analysis<|message|>The user said something.<|end|><|start|>assistant<|channel|>final<|message|>${said.answer}<|return|>`;
  // A continued answer need not have its reasoning in the prompt.
  for (const whole of [text, text.slice(Math.max(0, text.lastIndexOf(FINAL)))]) {
    if (whole.startsWith(tail)) return { text: whole.slice(tail.length), delayMs: said.delayMs };
  }
  return { text: " (continued)<|return|>", delayMs: said.delayMs };
}

/** A guard's answer about the last message of a prompt. Undefined if the prompt does not ask a guard. */
function verdict(prompt: string, user: string): string | undefined {
  const last = [...prompt.matchAll(/<\|im_start\|>(user|assistant)\n(.*?)<\|im_end\|>/gs)].at(-1);
  const judged = last?.[2] ?? user;
  const given = /<verdict (.*?)>/s.exec(judged)?.[1];
  const hazard = given === "safe" ? undefined : given;
  if (user.includes("<content>")) {
    return JSON.stringify(hazard === undefined ? { violation: 0 } : { violation: 1, categories: { [hazard]: 0.8 } });
  }
  const isAnswer = last?.[1] === "assistant" && !judged.endsWith("</tool_call>");
  if (given === undefined && !isAnswer) return undefined;
  return hazard === undefined ? "safe" : `unsafe\n${hazard}`;
}

/** The script in a user text, or the plain answer to it. Only an answer to the user is scripted, none to a tool. */
function scripted(
  user: string,
  output: string | undefined,
  judged?: string,
): { script: string | undefined; answer: string; delayMs: number } {
  const script = output === undefined && judged === undefined ? SCRIPT.exec(user)?.[1] : undefined;
  const words = /WORDS=(\d+)/.exec(user)?.[1];
  const count = Math.min(Number(words ?? 0), 1_000_000);
  let answer = `You said: ${user}`;
  if (judged !== undefined) answer = judged;
  else if (output !== undefined) answer = `The tool returned: ${output}`;
  else if (words !== undefined) answer = Array.from({ length: count }, (_, index) => `w${index}`).join(" ");
  return {
    script: script?.replaceAll("‹", "<").replaceAll("›", ">"),
    answer,
    delayMs: Number(/DELAY=(\d+)/.exec(user)?.[1] ?? 0),
  };
}

/** The text after the reasoning and the lines around it. */
function answerIn(text: string): string {
  const end = text.lastIndexOf(THOUGHTS_END);
  return text.slice(end < 0 ? 0 : end + THOUGHTS_END.length).replace(/^\n+/, "");
}

/** The rest of the output if the prompt ends with its beginning. */
function restOfChatml(text: string, tail: string): string {
  if (text.startsWith(tail)) return text.slice(tail.length);
  // Templates add lines around reasoning, and grammars forbid them. Only the answer is compared.
  const said = answerIn(tail);
  const content = answerIn(text);
  return content.startsWith(said) ? content.slice(said.length) : " (continued)<|im_end|>";
}

function after(text: string, mark: string): string {
  const at = text.lastIndexOf(mark);
  return at < 0 ? "" : text.slice(at + mark.length);
}
