import type { ToolDescription, ToolNamespace } from "@responses-edge/harmony";
import { z } from "zod";

/**
 * The browser's description for models. The namespace is openai/harmony's verbatim (`ToolNamespaceConfig::browser`,
 * `src/chat.rs`): gpt-oss was trained with it.
 */

const BROWSER_USE = `The \`cursor\` appears in brackets before each browsing display: \`[{cursor}]\`.
Cite information from the tool using the following format:
\`【{cursor}†L{line_start}(-L{line_end})?】\`, for example: \`【6†L9-L11】\` or \`【8†L3】\`.
Do not quote more than 10 words directly from the tool output.`;

export const BROWSER_NAMESPACE: ToolNamespace = {
  name: "browser",
  description: `Tool for browsing.\n${BROWSER_USE}\nsources=web (default: web)`,
  tools: [
    {
      name: "search",
      description: "Searches for information related to `query` and displays `topn` results.",
      parameters: {
        type: "object",
        properties: {
          query: { type: "string" },
          topn: { type: "number", default: 10 },
          source: { type: "string" },
        },
        required: ["query"],
      },
    },
    {
      name: "open",
      description: `Opens the link \`id\` from the page indicated by \`cursor\` starting at line number \`loc\`, showing \`num_lines\` lines.
Valid link ids are displayed with the formatting: \`【{id}†.*】\`.
If \`cursor\` is not provided, the most recent page is implied.
If \`id\` is a string, it is treated as a fully qualified URL associated with \`source\`.
If \`loc\` is not provided, the viewport will be positioned at the beginning of the document or centered on the most relevant passage, if available.
Use this function without \`id\` to scroll to a new location of an opened page.`,
      parameters: {
        type: "object",
        properties: {
          id: { type: ["number", "string"], default: -1 },
          cursor: { type: "number", default: -1 },
          loc: { type: "number", default: -1 },
          num_lines: { type: "number", default: -1 },
          view_source: { type: "boolean", default: false },
          source: { type: "string" },
        },
      },
    },
    {
      name: "find",
      description: "Finds exact matches of `pattern` in the current page, or the page given by `cursor`.",
      parameters: {
        type: "object",
        properties: {
          pattern: { type: "string" },
          cursor: { type: "number", default: -1 },
        },
        required: ["pattern"],
      },
    },
  ],
};

/**
 * `browser_search`, `browser_open` and `browser_find`. The first two describe citations, because each may be offered
 * alone.
 */
export const BROWSER_FUNCTIONS: ToolDescription[] = BROWSER_NAMESPACE.tools
  .map((tool) => ({ ...tool, name: `browser_${tool.name}` }))
  .map((tool) =>
    tool.name === "browser_find" ? tool : { ...tool, description: `${tool.description}\n${BROWSER_USE}` },
  );

/** Arguments of the browser's tools, as models write them. */

/** Models write numbers in several ways; an invalid one counts as absent, which is -1 in gpt-oss's browser. */
const count = z
  .union([z.number(), z.stringFormat("integer", /^-?\d+$/).transform(Number)])
  .transform(Math.trunc)
  .catch(-1);

const MAX_QUERY_CHARS = 2000;
const MAX_PATTERN_CHARS = 500;

export const searchArguments = z.object({
  query: z.string().transform((query) => query.slice(0, MAX_QUERY_CHARS)),
  topn: count,
});

export const openArguments = z.object({
  id: z.union([z.number(), z.string()]).catch(-1),
  cursor: count,
  loc: count,
  num_lines: count,
  view_source: z.boolean().catch(false),
});

export const findArguments = z.object({
  pattern: z.union([z.string(), z.number().transform(String)]).transform((text) => text.slice(0, MAX_PATTERN_CHARS)),
  cursor: count,
});

export type OpenArguments = z.infer<typeof openArguments>;

/** As the tool's description says. */
export const DEFAULT_TOPN = 10;
