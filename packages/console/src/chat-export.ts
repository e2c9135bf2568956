import type { ApiObject } from "./json.ts";
import { download } from "./save.ts";
import type { TurnView } from "./turn-view.ts";

/** A chat as a file: the path that is on the page. */

export function exportMarkdown(views: readonly TurnView[], title: string) {
  const parts = views.flatMap(({ turn, output }) => [...(turn.items ?? []), ...output].map(markdownOf));
  download(`${fileName(title)}.md`, `# ${title}\n\n${parts.filter(Boolean).join("\n\n")}\n`);
}

export function exportJson(views: readonly TurnView[], title: string) {
  const turns = views.map(({ turn, response }) => ({ input: turn.items ?? turn.text, response: response ?? null }));
  download(`${fileName(title)}.json`, JSON.stringify({ title, turns }, null, 2));
}

function fileName(title: string) {
  return (
    title
      .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
      .replaceAll(/^-|-$/g, "")
      .slice(0, 60) || "chat"
  );
}

function markdownOf(item: ApiObject): string {
  const { type, role, content, name, summary } = item;
  if (type === "message" || type === undefined) {
    const texts = typeof content === "string" ? [content] : (content ?? []).map(partOf);
    const who = role === "assistant" ? "Assistant" : role === "user" ? "User" : String(role);
    return `**${who}**\n\n${texts.join("\n\n")}`;
  }
  if (type === "reasoning") {
    const thought = [...(summary ?? []), ...(content ?? [])].map((part: ApiObject) => part.text ?? "").join("\n\n");
    return thought === "" ? "" : `<details><summary>Reasoning</summary>\n\n${thought}\n\n</details>`;
  }
  const title = type.replaceAll("_", " ");
  return `**${title[0]?.toUpperCase()}${title.slice(1)}**${name ? ` \`${name}\`` : ""}\n\n${fenced(item)}`;
}

function partOf(part: ApiObject): string {
  if (typeof part.text === "string") return part.text;
  if (typeof part.refusal === "string") return part.refusal;
  return `[${part.type}${part.filename ? `: ${part.filename}` : ""}]`;
}

/** The fields of a call or of its output, as a block of code. */
function fenced({ type: _type, id: _id, status: _status, ...fields }: ApiObject) {
  const text = JSON.stringify(fields, null, 2);
  const fence = "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map(([run]) => run.length + 1)));
  return `${fence}json\n${text}\n${fence}`;
}
