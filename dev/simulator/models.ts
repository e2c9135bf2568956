/** The `root` of each model card whose `root` differs from its served name. */
const ROOTS: Record<string, string> = {
  "tiny-qwen3": "models/tiny-qwen3",
  "tiny-gpt-oss": "models/tiny-gpt-oss",
  "simulator-gpt-oss": "openai/gpt-oss-20b",
  "simulator-harmony": "openai/gpt-oss-120b",
};

/** The models that are served by default. */
export const DEFAULT_MODELS = [
  "simulator",
  "simulator-reasoning",
  "simulator-gpt-oss",
  "simulator-harmony",
  "tiny-qwen3",
  "tiny-gpt-oss",
];

/** The `root` of a served model. */
export function rootOf(model: string): string {
  return Object.hasOwn(ROOTS, model) ? (ROOTS[model] ?? model) : model;
}

/** True if a served model is a gpt-oss, which uses Harmony on /v1/completions. */
export function speaksHarmony(model: string): boolean {
  return /gpt-oss/i.test(`${model} ${rootOf(model)}`);
}

/**
 * True if a served model understands the script language. It then behaves like the tiny models for tests with a real
 * vLLM.
 */
export function isScripted(model: string): boolean {
  return model.startsWith("tiny-");
}

/** The context length of such a model; `undefined` for others. */
export function ownContextLength(model: string): number | undefined {
  return { "tiny-qwen3": 4096, "tiny-gpt-oss": 8192 }[model];
}
