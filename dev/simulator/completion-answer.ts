import type { CompletionRequest } from "./completion-request.ts";
import { deterministicWords, type Said, say } from "./generation.ts";
import { underGrammar } from "./grammar.ts";
import { fillSchema } from "./schema-filler.ts";
import type { Settings } from "./settings.ts";

/** The simulated model's text after a raw prompt: it repeats the prompt's last line that is not empty. */
export function answerCompletion(prompt: string, request: CompletionRequest, settings: Settings): Said {
  if (settings.words !== undefined) return { kind: "content", tokens: deterministicWords(settings.words) };
  if (settings.mode === "transcript") return say("content", JSON.stringify(prompt));
  const line = prompt.split("\n").findLast((entry) => entry.trim() !== "") ?? "";
  switch (request.format.kind) {
    case "text":
      return say("content", ` You said: ${line}`);
    case "json_object":
      return say("content", JSON.stringify({ answer: line }));
    case "json_schema":
      return say("content", JSON.stringify(fillSchema(request.format.schema)));
    case "choice":
      return say("content", request.format.choice);
    case "grammar":
      return say("content", underGrammar(request.format, line));
  }
}
