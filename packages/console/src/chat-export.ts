import { describe, type Part } from "./item-description.ts";
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

/** An item, as the page shows it. */
function markdownOf(item: ApiObject): string {
  const { title, name, parts, images = [], isFolded } = describe(item);
  const texts = [...parts.map(partOf), ...images.map(() => "[image]")].join("\n\n");
  if (isFolded) return texts && `<details><summary>${title}</summary>\n\n${texts}\n\n</details>`;
  return `**${item.role === "user" ? "User" : title}**${name ? ` \`${name}\`` : ""}\n\n${texts}`;
}

function partOf({ label, text, isCode }: Part): string {
  const fence = "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map(([run]) => run.length + 1)));
  const written = isCode ? `${fence}\n${text}\n${fence}` : text;
  return label ? `${label}:\n\n${written}` : written;
}
