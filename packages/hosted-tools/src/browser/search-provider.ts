import { decodeText, oneLine, shortened } from "@responses-edge/file-text/page-text";
import { z } from "zod";

/** The search providers: an operator's SearXNG, or Brave Search with a key. */

export interface SearchProvider {
  /**
   * At most `topn` hits, best first.
   *
   * @throws SearchError with a message for the model. Network errors and aborts as `fetch` gives them.
   */
  search(query: string, options: { topn: number; signal?: AbortSignal }): Promise<SearchHit[]>;
}

export interface SearchHit {
  /** http or https. */
  url: string;
  title: string;
  snippet: string;
}

/** A search that failed. The message is for the model, and names no address or key of the operator. */
export class SearchError extends Error {}

export type SearchFetch = (
  url: string,
  init: { headers: Record<string, string>; signal?: AbortSignal },
) => Promise<Response>;

const MAX_ANSWER_BYTES = 2_000_000;
const MAX_URL_CHARS = 2048;
const MAX_TITLE_CHARS = 300;
const MAX_SNIPPET_CHARS = 1000;

/** JSON of another server: missing fields, and those of another type, count as empty. */
const text = z.string().catch("");

const searxngAnswer = z.object({
  results: z.array(z.object({ url: text, title: text, content: text }).catch({ url: "", title: "", content: "" })),
});

const braveAnswer = z.object({
  web: z
    .object({
      results: z.array(
        z
          .object({ url: text, title: text, description: text, extra_snippets: z.array(text).catch([]) })
          .catch({ url: "", title: "", description: "", extra_snippets: [] }),
      ),
    })
    // Left out without results.
    .nullish(),
});

/**
 * SearXNG's JSON API (docs.searxng.org, "Search API"). The instance must list `json` under `search.formats` in its
 * settings, or it answers 403. It has no parameter for the number of results.
 */
export function searxng(baseUrl: string, fetch: SearchFetch): SearchProvider {
  const endpoint = `${baseUrl.replace(/\/+$/, "")}/search`;
  return {
    async search(query, { topn, signal }) {
      const parameters = new URLSearchParams({ q: query, format: "json" });
      const response = await fetch(`${endpoint}?${parameters}`, { headers: { accept: "application/json" }, signal });
      const { results } = await readAnswer(response, searxngAnswer);
      return hits(
        results.map(({ url, title, content }) => ({ url, title, snippet: content })),
        topn,
      );
    },
  };
}

/** Brave's limits on `q` and `count` (Web Search API, query parameters). */
const BRAVE_MAX_QUERY_CHARS = 400;
const BRAVE_MAX_QUERY_WORDS = 50;
const BRAVE_MAX_COUNT = 20;

/** Brave's Web Search API, `GET /res/v1/web/search` with the key as `X-Subscription-Token`. */
export function braveSearch(key: string, fetch: SearchFetch): SearchProvider {
  return {
    async search(query, { topn, signal }) {
      const parameters = new URLSearchParams({
        q: query.trim().split(/\s+/, BRAVE_MAX_QUERY_WORDS).join(" ").slice(0, BRAVE_MAX_QUERY_CHARS).toWellFormed(),
        count: String(Math.min(topn, BRAVE_MAX_COUNT)),
        // Without <strong> about the words that match.
        text_decorations: "false",
        result_filter: "web",
      });
      const response = await fetch(`https://api.search.brave.com/res/v1/web/search?${parameters}`, {
        headers: { accept: "application/json", "x-subscription-token": key },
        signal,
      });
      const { web } = await readAnswer(response, braveAnswer);
      return hits(
        (web?.results ?? []).map(({ url, title, description, extra_snippets }) => ({
          url,
          title,
          snippet: [description, ...extra_snippets].join(" "),
        })),
        topn,
      );
    },
  };
}

async function readAnswer<Answer>(response: Response, schema: z.ZodType<Answer>): Promise<Answer> {
  if (!response.ok) {
    await response.body?.cancel();
    throw new SearchError(`the search engine answered with HTTP ${response.status}`);
  }
  const answer = schema.safeParse(await readJson(response));
  if (!answer.success) throw new SearchError("the search engine's answer was not understood");
  return answer.data;
}

async function readJson(response: Response): Promise<unknown> {
  const decoder = new TextDecoder();
  let json = "";
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.byteLength;
    // Leaving the loop cancels the body.
    if (bytes > MAX_ANSWER_BYTES) throw new SearchError("the search engine's answer was too long");
    json += decoder.decode(chunk, { stream: true });
  }
  try {
    return JSON.parse(json + decoder.decode());
  } catch {
    return undefined;
  }
}

/** The usable results of another server: web addresses, each once, as plain text. */
function hits(results: SearchHit[], topn: number): SearchHit[] {
  const found = new Map<string, SearchHit>();
  for (const { url, title, snippet } of results) {
    if (found.size === topn) break;
    if (url.length > MAX_URL_CHARS || !URL.canParse(url)) continue;
    const { href, protocol } = new URL(url);
    if ((protocol !== "https:" && protocol !== "http:") || found.has(href)) continue;
    found.set(href, {
      url: href,
      title: shortened(plain(title), MAX_TITLE_CHARS),
      snippet: shortened(plain(snippet), MAX_SNIPPET_CHARS),
    });
  }
  return [...found.values()];
}

/** Engines return fragments of HTML: emphasis and character references. */
function plain(html: string): string {
  return oneLine(decodeText(html.slice(0, 4 * MAX_SNIPPET_CHARS).replace(/<\/?[a-z][^<>]{0,100}>/gi, "")));
}
