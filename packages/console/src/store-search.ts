import { html, nothing, render } from "lit-html";
import type { VectorStore } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { Asking } from "./asking.ts";
import { type Form, fieldsTemplate, valuesIn } from "./fields.ts";
import { count } from "./format.ts";
import { figures } from "./list-and-one.ts";
import { type Found, pagesTag, passageText } from "./passage.ts";
import type { PagePart } from "./resource.ts";
import { attributesTemplate } from "./store-files.ts";

/**
 * Searches a vector store and shows why each chunk was found: `POST /v1/vector_stores/{id}/search` with `include:
 * ["explanation"]`.
 */

const FILTER_EXAMPLE = `{ "type": "and", "filters": [
  { "type": "eq", "key": "language", "value": "en" },
  { "type": "gte", "key": "year", "value": 2024 }
] }`;

/** Weights of embeddings and of words, for each choice of the user. */
const WEIGHTS: Record<string, [label: string, embedding: number, text: number]> = {
  both: ["words and meaning", 1, 1],
  text: ["words", 0, 1],
  embedding: ["meaning", 1, 0],
};

function formOf(isByWordsAlone: boolean): Form {
  const choices = Object.entries(WEIGHTS).filter(([by]) => !isByWordsAlone || by === "text");
  const filters = "Filters (JSON), by attributes of files";
  return [
    { name: "query", label: "Queries, one a line", kind: "lines", isRequired: true },
    { name: "max", label: "Most results", kind: "number", min: 1, max: 50, isRequired: true },
    { name: "by", label: "Found by", kind: "choice", options: choices.map(([by, [label]]) => [by, label]) },
    { title: "Filters", fields: [{ name: "filters", label: filters, kind: "json", placeholder: FILTER_EXAMPLE }] },
  ];
}

/** Scores with a smaller difference count as equal. */
const SAME = 1e-9;

/** @param id of the store */
export function storeSearch(id: string): PagePart<VectorStore> {
  const element = document.createElement("section");
  element.className = "card stack";
  let isByWordsAlone = false;

  const search = new Asking(draw, async (data): Promise<{ queries: string[]; results: Found[] }> => {
    const { query, max, by, filters } = valuesIn(formOf(isByWordsAlone), data);
    const [, embedding_weight = 1, text_weight = 1] = WEIGHTS[by] ?? [];
    const answer = await callJson(`/v1/vector_stores/${encodeURIComponent(id)}/search`, {
      body: {
        query,
        max_num_results: max,
        filters,
        ...(!isByWordsAlone && { ranking_options: { hybrid_search: { embedding_weight, text_weight } } }),
        include: ["explanation"],
      },
    });
    announce(`${count(answer.data.length)} results.`);
    return { queries: answer.search_query, results: answer.data };
  });

  function draw() {
    const { queries, results } = search.answer ?? {};
    render(
      html`
        <h3>Search</h3>
        <form class="stack" @submit=${search.submit}>
          ${fieldsTemplate(formOf(isByWordsAlone), { max: 10 }, "search")}
          <div class="buttons">${search.button("Search", "Searching…")}</div>
        </form>
        ${search.fault}
        ${results?.length === 0 ? html`<p class="note">Nothing was found.</p>` : nothing}
        ${results?.length ? html`<ol class="stack tight" aria-label="Results">${results.map((each) => resultTemplate(each, queries ?? []))}</ol>` : nothing}
      `,
      element,
    );
  }

  function resultTemplate({ filename, score, attributes, content, explanation }: Found, queries: readonly string[]) {
    const { fusion_score: before, page, last_page: last } = explanation;
    const why = explanation.queries.flatMap(({ text_rank: byText, embedding_rank: byMeaning, words }, index) => {
      const rows: [string, unknown][] = [["Rank by words", count(byText)]];
      if (queries.length > 1) rows.unshift(["Query", queries[index]]);
      if (!isByWordsAlone) rows.push(["Rank by meaning", count(byMeaning)]);
      return [...rows, ["Words that match", words.join(", ") || "none"] as const];
    });
    return html`<li class="card stack tight">
      <p class="buttons">
        <strong class="file-name" dir="auto">${filename}</strong>
        <span class="tag busy">score ${score.toFixed(3)}</span>
        ${pagesTag(page, last)}
        ${Math.abs(score - before) > SAME ? html`<span class="tag">reranked, ${before.toFixed(3)} before</span>` : nothing}
      </p>
      <div class="why">${figures(why)}</div>
      ${attributes && Object.keys(attributes).length > 0 ? html`<p class="note">${attributesTemplate(attributes)}</p>` : nothing}
      ${passageText(
        content.map(({ text }) => text).join("\n"),
        explanation.queries.flatMap(({ words }) => words),
      )}
    </li>`;
  }

  draw();
  return {
    element,
    update(store) {
      isByWordsAlone = store.embedding_model === null;
      draw();
    },
  };
}
