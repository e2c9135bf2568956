import { html, nothing, render } from "lit-html";
import type { VectorStore } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { faultNotice, messageWithField } from "./dialogs.ts";
import type { Form } from "./fields.ts";
import { fieldsTemplate, valuesIn } from "./fields.ts";
import { count } from "./format.ts";
import { figures } from "./list-and-one.ts";
import type { Found } from "./passage.ts";
import { pagesTag, passageText } from "./passage.ts";
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
  return [
    { name: "query", label: "Queries, one a line", kind: "lines", isRequired: true },
    { name: "max", label: "Most results", kind: "number", min: 1, max: 50, isRequired: true },
    { name: "by", label: "Found by", kind: "choice", options: choices.map(([by, [label]]) => [by, label]) },
    {
      title: "Filters",
      fields: [
        { name: "filters", label: "Filters (JSON), by attributes of files", kind: "json", placeholder: FILTER_EXAMPLE },
      ],
    },
  ];
}

/** Scores with a smaller difference count as equal. */
const SAME = 1e-9;

/** @param id of the store */
export function storeSearch(id: string): PagePart<VectorStore> {
  const element = document.createElement("section");
  element.className = "card stack";
  let page: { queries: string[]; results: Found[] } | undefined;
  let fault = "";
  let isBusy = false;
  let isByWordsAlone = false;

  async function search(event: SubmitEvent) {
    event.preventDefault();
    if (isBusy) return;
    const data = new FormData(event.currentTarget as HTMLFormElement);
    isBusy = true;
    fault = "";
    draw();
    try {
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
      page = { queries: answer.search_query, results: answer.data };
      announce(`${count(page.results.length)} results.`);
    } catch (error) {
      page = undefined;
      fault = messageWithField(error);
    }
    isBusy = false;
    draw();
  }

  function draw() {
    render(
      html`
        <h3>Search</h3>
        <form class="stack" @submit=${search}>
          ${fieldsTemplate(formOf(isByWordsAlone), { max: 10 }, "search")}
          <div class="buttons"><button class="primary" type="submit" aria-disabled=${String(isBusy)}>${isBusy ? "Searching…" : "Search"}</button></div>
        </form>
        ${faultNotice(fault)}
        ${page ? resultsTemplate(page) : nothing}
      `,
      element,
    );
  }

  function resultsTemplate({ queries, results }: { queries: string[]; results: Found[] }) {
    if (results.length === 0) return html`<p class="note">Nothing was found.</p>`;
    return html`<ol class="found" aria-label="Results">${results.map((each) => resultTemplate(each, queries))}</ol>`;
  }

  function resultTemplate({ filename, score, attributes, content, explanation }: Found, queries: readonly string[]) {
    const words = explanation.queries.flatMap((each) => each.words);
    const isReranked = Math.abs(score - explanation.fusion_score) > SAME;
    const why = explanation.queries.flatMap((each, index): [string, unknown][] => [
      ...(queries.length > 1 ? ([["Query", queries[index]]] as [string, unknown][]) : []),
      ["Rank by words", count(each.text_rank)],
      ...(isByWordsAlone ? [] : ([["Rank by meaning", count(each.embedding_rank)]] as [string, unknown][])),
      ["Words that match", each.words.join(", ") || "none"],
    ]);
    return html`<li class="card">
      <p class="found-heading">
        <strong class="file-name" dir="auto">${filename}</strong>
        <span class="tag busy">score ${score.toFixed(3)}</span>
        ${pagesTag(explanation.page, explanation.last_page)}
        ${isReranked ? html`<span class="tag">reranked, ${explanation.fusion_score.toFixed(3)} before</span>` : nothing}
      </p>
      <div class="why">${figures(why)}</div>
      ${attributes && Object.keys(attributes).length > 0 ? html`<p class="note">${attributesTemplate(attributes)}</p>` : nothing}
      ${passageText(content.map(({ text }) => text).join("\n"), words)}
    </li>`;
  }

  draw();
  return {
    element,
    update({ embedding_model: model }) {
      isByWordsAlone = model === null;
      draw();
    },
  };
}
