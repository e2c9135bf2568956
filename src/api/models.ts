import { cardModalities } from "@responses-edge/engines/modalities";
import { ApiError } from "@responses-edge/responses-api/errors";
import type { EngineName } from "@responses-edge/turn/contract/engine";
import { ModelAccess } from "../assembly/model-access.ts";
import { learnModel, listModels as list } from "../assembly/model-server.ts";
import { mayUseModel } from "./policy.ts";
import type { Caller } from "./transport.ts";

/** A model as its server shows it. Its fields may be anything, such as the command line of the server. */
type ModelCard = Awaited<ReturnType<typeof list>>[number];

/** A model as `/v1/models` shows it: OpenAI's fields, and those of vLLM that the API's description has. */
export type ShownModel = Pick<
  ModelCard,
  "id" | "object" | "created" | "owned_by" | "root" | "parent" | "max_model_len"
>;

type Asker = Pick<Caller, "config" | "signal" | "identity">;

/**
 * The models of vLLM and the configured aliases that the caller may use. Throws the ApiError of a model server that
 * does not list its models.
 */
export async function listModels(caller: Asker): Promise<ShownModel[]> {
  return (await cardsFor(caller)).map(shown);
}

async function cardsFor({ config, signal, identity }: Asker): Promise<ModelCard[]> {
  const cards = await list(config, signal);
  return cards.filter(({ id }) => mayUseModel(identity, id));
}

function shown({ id, created, owned_by, root, parent, max_model_len: length }: ModelCard): ShownModel {
  return {
    id,
    object: "model",
    created: Number.isInteger(created) ? created : 0,
    owned_by: typeof owned_by === "string" ? owned_by : "",
    ...(typeof root === "string" && { root }),
    ...((typeof parent === "string" || parent === null) && { parent }),
    ...((Number.isInteger(length) || length === null) && { max_model_len: length }),
  };
}

/** One of these models. Throws the 404 of any other name. */
export async function retrieveModel(caller: Asker, id: string): Promise<ShownModel> {
  const find = async () => (await listModels(caller)).find((model) => model.id === id);
  let card = await find();
  if (!card) {
    // It may be new.
    await learnModel(caller.config, id, caller.signal);
    card = await find();
  }
  if (card) return card;
  const message = `The model '${id}' does not exist.`;
  throw new ApiError({ status: 404, message, param: "model", code: "model_not_found" });
}

/**
 * The models in the form of the Codex CLI (its `ModelInfo`, as of 0.169). Codex asks `GET /v1/models` with
 * `client_version`, or reads the answer from a file (`model_catalog_json`). Without it Codex does not know a model's
 * window, and so never compacts, and does not offer `apply_patch`.
 */

/** One model in Codex's own shape. The operator may set any field of it (`CODEX_MODELS`). */
export interface CodexModel {
  slug: string;
  display_name: string;
  [field: string]: unknown;
}

/** The models that clients may name. Throws the ApiError of a model server that does not list its models. */
export async function listCodexModels(caller: Pick<Caller, "config" | "signal" | "identity">): Promise<CodexModel[]> {
  const { config, signal } = caller;
  const cards = await cardsFor(caller);
  return Promise.all(
    cards.map(async (card, index) => {
      const { engine } = await new ModelAccess(config, "").resolve(card.id, signal);
      const own = Object.hasOwn(config.codexModels, card.id) ? config.codexModels[card.id] : undefined;
      return { ...codexModel(card, engine, index), ...config.codexModels["*"], ...own };
    }),
  );
}

function codexModel(card: ModelCard, engine: EngineName, priority: number): CodexModel {
  const { max_model_len: length } = card;
  return {
    slug: card.id,
    display_name: card.id,
    description: null,
    base_instructions: INSTRUCTIONS,
    // gpt-oss has its own efforts. The templates of other models define theirs.
    supported_reasoning_levels: engine === "harmony" ? HARMONY_LEVELS : [],
    ...(engine === "harmony" && { default_reasoning_level: "medium" }),
    supports_reasoning_summaries: true,
    default_reasoning_summary: "auto",
    support_verbosity: false,
    shell_type: "unified_exec",
    apply_patch_tool_type: "freeform",
    web_search_tool_type: "text",
    supports_search_tool: false,
    supports_parallel_tool_calls: true,
    experimental_supported_tools: [],
    truncation_policy: { mode: "tokens", limit: 10_000 },
    ...(typeof length === "number" && { context_window: length, max_context_window: length }),
    effective_context_window_percent: 95,
    input_modalities: cardModalities(card) ?? ["text"],
    visibility: "list",
    supported_in_api: true,
    priority,
  };
}

const HARMONY_LEVELS = [
  { effort: "low", description: "Short thoughts" },
  { effort: "medium", description: "Thoughts of a middle length" },
  { effort: "high", description: "Long thoughts" },
];

/** The instructions that Codex gives the model first. Its own texts speak of OpenAI's models; `CODEX_MODELS` may have better ones. */
const INSTRUCTIONS = `You are a coding agent in the Codex CLI, an open-source tool that works on a user's computer, in a terminal. You and the user share one workspace. Be precise, safe and helpful.

# How you work
- Keep going until the task is solved, then end your turn. Use the tools; do not guess what a file or a command would say.
- Before you change code, read what surrounds it. Mend the cause of a fault, not its sign. Keep changes small, in the style of the code that is there.
- Say in one short sentence what you are about to do before you call tools for something new.
- Run the tests or the build where there are any that show whether your change is right, the nearest ones first.
- Do not commit, create branches, undo changes that you did not make, or add licence headers, unless you are asked to.
- Obey the AGENTS.md files of the folders that you work in. The nearest one counts most; what the user says counts more.

# Tools
- Run commands with the shell tool. Search with \`rg\` or \`rg --files\` where they are installed.
- Where there is an \`apply_patch\` tool, edit files with it, and nothing else. Its input is a patch as text:
  *** Begin Patch
  *** Update File: path/to/file
  @@ a line by which the place is found
   a line that stays
  -a line that goes
  +a line that comes
  *** End Patch
  \`*** Add File: path\` is followed by lines that all begin with \`+\`; \`*** Delete File: path\` by nothing. Paths are relative.
- Commands may need the user's approval: say then what they are for.

# What you say
- Write for a colleague: short, plain, to the point. Name files by their paths, with a line where it helps: \`src/app.ts:42\`.
- At the end say what you have done and what is left to check. Do not repeat the contents of files that you have written.
`;
