import type { ToolDescription, ToolNamespace } from "../contract/engine.ts";

/**
 * The tools that gpt-oss was trained with, as their namespaces in Harmony's system message, and as functions for models
 * of other kinds. Texts of `browser` and `python` are those of openai/harmony (`ToolNamespaceConfig::browser` and
 * `::python`, `src/chat.rs`), to the letter: the model knows them.
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

/** Its message is the program itself, no JSON; so there is no tool in the namespace. */
export const PYTHON_NAMESPACE: ToolNamespace = {
  name: "python",
  description: `Use this tool to execute Python code in your chain of thought. The code will not be shown to the user. This tool should be used for internal reasoning, but not for code that is intended to be visible to the user (e.g. when creating plots, tables, or files).

When you send a message containing Python code to python, it will be executed in a stateful Jupyter notebook environment. python will respond with the output of the execution or time out after 120.0 seconds. The drive at '/mnt/data' can be used to save and persist user files. Internet access for this session is UNKNOWN. Depends on the cluster.`,
  tools: [],
};

/** openai/harmony has no text for it. The arguments are those that vLLM documents for its container tool. */
export const CONTAINER_NAMESPACE: ToolNamespace = {
  name: "container",
  description: "Utilities for interacting with a container, for example, a Docker container.",
  tools: [
    {
      name: "exec",
      description: `Runs the command \`cmd\` in the container and returns its output.
If \`workdir\` is not provided, the container's default working directory is used.
Calls with the same \`session_name\` share a session. \`timeout\` is in seconds.`,
      parameters: {
        type: "object",
        properties: {
          cmd: { type: "array", items: { type: "string" } },
          workdir: { type: "string" },
          env: { type: "object", additionalProperties: { type: "string" } },
          session_name: { type: "string" },
          timeout: { type: "number" },
          user: { type: "string" },
        },
        required: ["cmd"],
      },
    },
  ],
};

/** `browser_search`, `browser_open` and `browser_find`. The first two say how to cite: each may be offered alone. */
export const BROWSER_FUNCTIONS: ToolDescription[] = asFunctions(BROWSER_NAMESPACE).map((tool) =>
  tool.name === "browser_find" ? tool : { ...tool, description: `${tool.description}\n${BROWSER_USE}` },
);

/** `python`, with the program as `code`: the argument that vLLM gives to its Python tool. */
export const PYTHON_FUNCTIONS: ToolDescription[] = [
  {
    name: "python",
    description: `Executes Python code in a stateful Jupyter notebook environment and returns its output. The code is not shown to the user. Use print() to see values.`,
    parameters: { type: "object", properties: { code: { type: "string" } }, required: ["code"] },
  },
];

/** `container_exec`. */
export const CONTAINER_FUNCTIONS: ToolDescription[] = asFunctions(CONTAINER_NAMESPACE);

function asFunctions({ name, tools }: ToolNamespace): ToolDescription[] {
  return tools.map((tool) => ({ ...tool, name: `${name}_${tool.name}` }));
}
