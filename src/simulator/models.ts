/** What a served name stands for, as a model card's `root` has it, where that is not the name itself. */
const ROOTS: Record<string, string> = {
  "simulator-gpt-oss": "openai/gpt-oss-20b",
  "simulator-harmony": "openai/gpt-oss-120b",
};

/** The models that are served unless others are given. */
export const DEFAULT_MODELS = ["simulator", "simulator-reasoning", ...Object.keys(ROOTS)];

/** The `root` of a served model. */
export function rootOf(model: string): string {
  return Object.hasOwn(ROOTS, model) ? (ROOTS[model] ?? model) : model;
}

/** Whether a served model is a gpt-oss, which speaks Harmony on /v1/completions. */
export function speaksHarmony(model: string): boolean {
  return /gpt-oss/i.test(`${model} ${rootOf(model)}`);
}
