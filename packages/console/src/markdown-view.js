import { html, nothing } from "lit-html";
import { isWebPage } from "./format.js";
import { codeBlock, formula } from "./late-views.js";
import { decoded } from "./markdown-tokens.js";

/**
 * Tokens of Markdown as templates. A model's text becomes the text of the elements listed here, and links to web pages.
 * HTML in the text is shown as text, and no image is loaded.
 *
 * @typedef {import("./markdown-tokens.js").Token} Token
 * @typedef {(number: number) => Element | undefined} Inserts The element that replaces the mark with this number
 */

/** Markdown that is nested deeper is shown as text. */
const MAX_DEPTH = 24;

/** A mark for an inserted element: its number between two private-use characters. */
const MARK = /\ue000(\d+)\ue001/;

/** @param {number} number */
export function markOf(number) {
  return `\ue000${number}\ue001`;
}

/** A text without what would be a mark. @param {string} text */
export function withoutMarks(text) {
  return text.replaceAll(/[\ue000\ue001]/g, "\ufffd");
}

/** @param {Token} token @param {Inserts} inserts @param {number} [depth] @returns {unknown} */
export function blockTemplate(token, inserts, depth = 0) {
  if (depth > MAX_DEPTH) return html`<p dir="auto">${written(token.raw, inserts)}</p>`;
  const inline = () => inlineTemplates(token.tokens, inserts, depth + 1);
  const blocks = (/** @type {Token[] | undefined} */ tokens) =>
    (tokens ?? []).map((each) => blockTemplate(each, inserts, depth + 1));
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
      return html`<div class="formula">${formula(token.formula, true)}</div>`;
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

/** The blocks of a list's item: those of a tight list are no paragraphs. @param {Token} item @param {Inserts} inserts @param {number} depth */
function itemBlocks(item, inserts, depth) {
  return (item.tokens ?? []).map((each) =>
    each.type === "text" && !item.loose
      ? inlineTemplates(each.tokens ?? [each], inserts, depth + 1)
      : each.type === "checkbox"
        ? nothing
        : blockTemplate(each, inserts, depth + 1),
  );
}

/** @param {Token} token @param {Inserts} inserts @param {number} depth */
function tableTemplate({ header, rows }, inserts, depth) {
  const cell = (/** @type {any} */ { tokens, align }) => ({
    content: inlineTemplates(tokens, inserts, depth + 1),
    side: align === "right" ? "right" : align === "center" ? "center" : "left",
  });
  return html`<div class="table-scroll" dir="auto" tabindex="0" role="region" aria-label="Table"><table>
    <thead><tr>${header.map(cell).map((/** @type {any} */ { content, side }) => html`<th dir="auto" class=${side}>${content}</th>`)}</tr></thead>
    <tbody>${rows.map((/** @type {any[]} */ row) => html`<tr>${row.map(cell).map(({ content, side }) => html`<td dir="auto" class=${side}>${content}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** @param {Token[] | undefined} tokens @param {Inserts} inserts @param {number} depth @returns {unknown[]} */
function inlineTemplates(tokens, inserts, depth) {
  return (tokens ?? []).map((token) => inlineTemplate(token, inserts, depth));
}

/** @param {Token} token @param {Inserts} inserts @param {number} depth @returns {unknown} */
function inlineTemplate(token, inserts, depth) {
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

/** A text with its inserted elements. @param {string} text @param {Inserts} inserts @returns {unknown} */
function written(text, inserts) {
  if (!MARK.test(text)) return text;
  // Every second part is a number.
  return text.split(MARK).map((part, index) => (index % 2 === 0 ? part : (inserts(Number(part)) ?? nothing)));
}

/** A text without inserted elements. @param {string} text */
function plain(text) {
  return text.replaceAll(new RegExp(MARK, "g"), "");
}
