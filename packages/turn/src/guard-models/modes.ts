import type { ModerationMode } from "./moderated-engine.ts";

/** The modes of both sides of a turn. Undefined: that side is not judged. */
export interface Modes {
  input: ModerationMode | undefined;
  output: ModerationMode | undefined;
}

/** `moderation` of a create, as far as it sets modes. */
interface AskedModeration {
  policy?: { [Side in keyof Modes]?: { mode: ModerationMode } | null | undefined } | null | undefined;
}

/**
 * The stricter of the operator's modes and a request's; undefined without moderation. OpenAI gives both results if a
 * request sets no mode.
 */
export function modesOf(operator: Modes, asked: AskedModeration | null | undefined): Modes | undefined {
  const modeOf = (side: keyof Modes) =>
    stricter(operator[side], asked ? (asked.policy?.[side]?.mode ?? "score") : undefined);
  const modes = { input: modeOf("input"), output: modeOf("output") };
  return modes.input === undefined && modes.output === undefined ? undefined : modes;
}

function stricter(one: ModerationMode | undefined, other: ModerationMode | undefined): ModerationMode | undefined {
  return one === "block" || other === "block" ? "block" : (one ?? other);
}
