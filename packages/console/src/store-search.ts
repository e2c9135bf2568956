import { html, nothing, render } from "lit-html";
import type { VectorStoreSearchResults } from "../api-types.d.ts";
import { announce } from "./announce.ts";
import { callJson } from "./api.ts";
import { faultNotice, messageOf, messageWithField } from "./dialogs.ts";
import { typedIn } from "./form-events.ts";
import { count } from "./format.ts";
import { pagesTag, passageText } from "./passage.ts";

/**
 * Searches a vector store and shows why each chunk was found: `POST /v1/vector_stores/{id}/search` with `include:
 * ["explanation"]`.
 */
type Result = VectorStoreSearchResults["data"][number];
export type Found = Result & { explanation: NonNullable<Result["explanation"]> };

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

/** Scores with a smaller difference count as equal. */
const SAME = 1e-9;

/** @param id of the store */
export function storeSearch(element: HTMLElement, id: string) {
  let page: { queries: string[]; results: Found[] } | undefined;
  let fault = "";
  let filterFault = "";
  let filters = "";
  let isBusy = false;
  let isByWordsAlone = false;

  async function search(event: SubmitEvent) {
    event.preventDefault();
    if (isBusy) return;
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const queries = String(data.get("query") ?? "")
      .split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== "");
    const [, embedding_weight = 1, text_weight = 1] = WEIGHTS[String(data.get("by"))] ?? [];
    filterFault = "";
    let filter: unknown;
    try {
      if (filters.trim() !== "") filter = JSON.parse(filters);
    } catch (error) {
      filterFault = `This is no JSON: ${messageOf(error)}`;
      draw();
      (element.querySelector("#search-filters") as HTMLElement | null)?.focus();
      return;
    }
    isBusy = true;
    fault = "";
    draw();
    try {
      const answer = await callJson(`/v1/vector_stores/${encodeURIComponent(id)}/search`, {
        body: {
          query: queries,
          max_num_results: Number(data.get("max")),
          ...(filter !== undefined && { filters: filter }),
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
        <h3>Try a search</h3>
        <form class="stack" @submit=${search}>
          <div>
            <label for="search-query">Queries, one a line</label>
            <textarea dir="auto" id="search-query" name="query" rows="1" required maxlength="16384"></textarea>
          </div>
          <div class="filters">
            <div>
              <label for="search-max">Most results</label>
              <input id="search-max" name="max" type="number" min="1" max="50" value="10" required />
            </div>
            <div>
              <label for="search-by">Found by</label>
              <select id="search-by" name="by" ?disabled=${isByWordsAlone}>
                ${isByWordsAlone ? html`<option value="text">words</option>` : Object.entries(WEIGHTS).map(([value, [label]]) => html`<option value=${value}>${label}</option>`)}
              </select>
            </div>
          </div>
          <details>
            <summary>Filters</summary>
            <div class="inner">
              <label for="search-filters">Filters (JSON), by attributes of files</label>
              <textarea
                dir="auto"
                id="search-filters"
                class="code"
                rows="2"
                spellcheck="false"
                aria-invalid=${filterFault !== ""}
                aria-describedby="search-filters-fault"
                .value=${filters}
                @input=${(event: Event) => {
                  const wasEmpty = filters === "";
                  filters = typedIn(event);
                  if (wasEmpty !== (filters === "")) draw();
                }}
              ></textarea>
              <p class="fault" id="search-filters-fault" dir="auto" role="alert">${filterFault}</p>
              ${
                filters === ""
                  ? html`<button
                      type="button"
                      class="plain"
                      @click=${() => {
                        filters = FILTER_EXAMPLE;
                        draw();
                      }}
                    >
                      Put in an example
                    </button>`
                  : nothing
              }
            </div>
          </details>
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
    return html`<li class="card">
      <p class="found-heading">
        <strong class="file-name" dir="auto">${filename}</strong>
        <span class="tag busy">score ${score.toFixed(3)}</span>
        ${pagesTag(explanation.page, explanation.last_page)}
        ${isReranked ? html`<span class="tag">reranked, ${explanation.fusion_score.toFixed(3)} before</span>` : nothing}
      </p>
      <dl class="figures why" aria-label="Why it was found">
        ${explanation.queries.map(
          (each, index) => html`
            ${queries.length > 1 ? html`<div class="why-query"><dt>Query</dt><dd dir="auto">${queries[index]}</dd></div>` : nothing}
            <div><dt>Rank by words</dt><dd>${rankText(each.text_rank)}</dd></div>
            ${isByWordsAlone ? nothing : html`<div><dt>Rank by meaning</dt><dd>${rankText(each.embedding_rank)}</dd></div>`}
            <div><dt>Words that match</dt><dd dir="auto">${each.words.length > 0 ? each.words.join(", ") : "none"}</dd></div>
          `,
        )}
      </dl>
      ${attributes && Object.keys(attributes).length > 0 ? html`<p class="attributes note" dir="auto">${Object.entries(attributes).map(([key, value]) => html`<code>${key}: ${String(value)}</code> `)}</p>` : nothing}
      ${passageText(content.map(({ text }) => text).join("\n"), words)}
    </li>`;
  }

  return {
    /** Sets whether the store has no embeddings. */
    byWordsAlone(is: boolean) {
      if (is === isByWordsAlone && element.firstChild) return;
      isByWordsAlone = is;
      draw();
    },
  };
}

function rankText(rank: number | null) {
  return rank === null ? "–" : count(rank);
}
