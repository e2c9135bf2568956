import { html, nothing } from "lit-html";
import { isWebPage } from "./format.ts";
import type { Parsed } from "./json.ts";
import { codeBlock, formula } from "./late-views.ts";
import { decoded, type Token } from "./markdown-tokens.ts";

/**
 * Tokens of Markdown as templates. A model's text becomes the text of the elements listed here, and links to web pages.
 * HTML in the text is shown as text, and no image is loaded.
 */

/** The element that replaces the mark with this number */
export type Inserts = (number: number) => Element | undefined;

/** Markdown that is nested deeper is shown as text. */
const MAX_DEPTH = 24;

/** A mark for an inserted element: its number between two private-use characters. */
const MARK = /\ue000(\d+)\ue001/;

export function markOf(number: number) {
  return `\ue000${number}\ue001`;
}

/** A text without what would be a mark. */
export function withoutMarks(text: string) {
  return text.replaceAll(/[\ue000\ue001]/g, "\ufffd");
}

export function blockTemplate(token: Token, inserts: Inserts, depth: number = 0): unknown {
  if (depth > MAX_DEPTH) return html`<p dir="auto">${written(token.raw, inserts)}</p>`;
  const inline = () => inlineTemplates(token.tokens, inserts, depth + 1);
  const blocks = (tokens: Token[] | undefined) => (tokens ?? []).map((each) => blockTemplate(each, inserts, depth + 1));
  switch (token.type) {
    case "space":
    case "def":
      return nothing;
    case "heading":
      return token.depth <= 2 ? html`<h3 dir="auto">${inline()}</h3>` : html`<h4 dir="auto">${inline()}</h4>`;
    case "paragraph":
      return html`<p dir="auto">${inline()}</p>`;
    case "text":
      return token.tokens
        ? html`<p dir="auto">${inline()}</p>`
        : html`<p dir="auto">${written(decoded(token.text ?? ""), inserts)}</p>`;
    case "blockquote":
      return html`<blockquote dir="auto">${blocks(token.tokens)}</blockquote>`;
    case "hr":
      return html`<hr />`;
    case "code":
      return codeBlock(plain(token.text ?? ""), token.lang ?? "");
    case "formula_block":
      return html`<div class="formula overflow-x-auto overflow-y-hidden py-1">${formula(token.formula, true)}</div>`;
    case "list": {
      const items = (token.items ?? []).map(
        (item) =>
          html`<li>${item.task ? html`<span class="task">${item.checked ? "☑ " : "☐ "}</span>` : nothing}${itemBlocks(item, inserts, depth)}</li>`,
      );
      return token.ordered
        ? html`<ol dir="auto" start=${token.start || 1}>${items}</ol>`
        : html`<ul dir="auto">${items}</ul>`;
    }
    case "table":
      return tableTemplate(token, inserts, depth);
    default:
      return html`<p dir="auto">${written(token.raw, inserts)}</p>`;
  }
}

/** The blocks of a list's item: those of a tight list are no paragraphs. */
function itemBlocks(item: Token, inserts: Inserts, depth: number) {
  return (item.tokens ?? []).map((each) =>
    each.type === "text" && !item.loose
      ? inlineTemplates(each.tokens ?? [each], inserts, depth + 1)
      : each.type === "checkbox"
        ? nothing
        : blockTemplate(each, inserts, depth + 1),
  );
}

/** Texts whose first letter is of a script that is written from right to left. */
const RIGHT_TO_LEFT = /^[^\p{L}]*[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}]/u;

function tableTemplate({ header, rows }: Token, inserts: Inserts, depth: number) {
  const cell = ({ tokens, align }: Parsed) => ({
    content: inlineTemplates(tokens, inserts, depth + 1),
    side: align === "right" ? "text-end" : align === "center" ? "text-center" : "",
  });
  // `dir="auto"` would look past the cells, which have directions of their own.
  const direction = RIGHT_TO_LEFT.test(header.map(({ text }: Parsed) => text).join(" ")) ? "rtl" : "ltr";
  return html`<div class="overflow-x-auto" dir=${direction} tabindex="0" role="region" aria-label="Table"><table>
    <thead><tr>${header.map(cell).map(({ content, side }: Parsed) => html`<th dir="auto" class=${side}>${content}</th>`)}</tr></thead>
    <tbody>${rows.map((row: Parsed[]) => html`<tr>${row.map(cell).map(({ content, side }) => html`<td dir="auto" class=${side}>${content}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function inlineTemplates(tokens: Token[] | undefined, inserts: Inserts, depth: number): unknown[] {
  return (tokens ?? []).map((token) => inlineTemplate(token, inserts, depth));
}

function inlineTemplate(token: Token, inserts: Inserts, depth: number): unknown {
  if (depth > MAX_DEPTH) return written(token.raw, inserts);
  const inner = () => inlineTemplates(token.tokens, inserts, depth + 1);
  switch (token.type) {
    case "text":
      return token.tokens ? inner() : written(decoded(token.text ?? ""), inserts);
    case "escape":
      return token.text;
    case "strong":
      return html`<strong>${inner()}</strong>`;
    case "em":
      return html`<em>${inner()}</em>`;
    case "del":
      return html`<del>${inner()}</del>`;
    case "codespan":
      return html`<code>${written(token.text ?? "", inserts)}</code>`;
    case "br":
      return html`<br />`;
    case "formula":
      return formula(token.formula, false);
    case "link":
      return isWebPage(token.href) || /^mailto:[^\s]+@[^\s]+$/.test(token.href)
        ? html`<a href=${plain(token.href)} target="_blank" rel="noopener noreferrer nofollow">${inner()}</a>`
        : html`${inner()} (${written(token.href, inserts)})`;
    case "image":
      // The page asks no other host for anything.
      return isWebPage(token.href)
        ? html`<a href=${plain(token.href)} target="_blank" rel="noopener noreferrer nofollow">Image: ${written(token.text || token.href, inserts)}</a>`
        : html`Image: ${written(token.text ?? "", inserts)}`;
    default:
      return written(token.raw, inserts);
  }
}

/** A text with its inserted elements. */
function written(text: string, inserts: Inserts): unknown {
  if (!MARK.test(text)) return text;
  // Every second part is a number.
  return text.split(MARK).map((part, index) => (index % 2 === 0 ? part : (inserts(Number(part)) ?? nothing)));
}

/** A text without inserted elements. */
function plain(text: string) {
  return text.replaceAll(new RegExp(MARK, "g"), "");
}
