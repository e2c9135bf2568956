import type { Prompt } from "@responses-edge/turn/contract/engine";

/** Each cut of an answer adds so much to the penalties of its continuation. */
const PENALTY = { frequency: 0.3, repetition: 0.05 };

/** The highest `frequency_penalty` that servers take. */
const MAX_FREQUENCY_PENALTY = 2;

/** Seeds that every server takes. */
const SEEDS = 2 ** 31;

/** Fields of vLLM's that make an answer go on differently after it was cut, because it repeated itself. None for any other prompt. */
export function againstRepetition({ repetitions, request, createdAt }: Prompt): Record<string, number> {
  if (!repetitions) return {};
  const frequency = (request.frequency_penalty ?? 0) + repetitions * PENALTY.frequency;
  return {
    seed: ((request.seed ?? createdAt) + repetitions) % SEEDS,
    frequency_penalty: Math.min(frequency, MAX_FREQUENCY_PENALTY),
    repetition_penalty: (request.repetition_penalty ?? 1) + repetitions * PENALTY.repetition,
  };
}
