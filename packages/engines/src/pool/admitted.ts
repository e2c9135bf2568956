import type { BodyFor } from "../attempts.ts";
import type { ModelServer } from "../model-server.ts";
import type { Admission, Meter } from "./admission.ts";
import { loadOf } from "./server-load.ts";

/** Where requests to a server are admitted, by its present limit. */
export function admissionOf({ config }: ModelServer): Admission {
  const { admission } = loadOf(config);
  admission.configure(config.maxInFlight);
  return admission;
}

/** A body whose length estimates the tokens of its prompt. */
export function measured(body: BodyFor, meter: Meter): BodyFor {
  return async (dialect) => {
    const made = typeof body === "function" ? await body(dialect) : body;
    meter.prompt = tokensIn(made);
    return made;
  };
}

/** Counts the tokens that the server has computed for an answer. */
export function meterTokens(meter: Meter, tokens: number): void {
  meter.tokens = tokens;
  meter.isExact = true;
  meter.recount();
}

/** Counts the tokens of an answer that has come as a whole, about. */
export function meterText(meter: Meter, text: string): void {
  meter.tokens = tokensIn(text);
  meter.recount();
}

/** The tokens of a body, about. */
function tokensIn({ length }: { length: number }): number {
  return Math.ceil(length / LENGTH_PER_TOKEN);
}

/** The characters of a body for each token, about. */
const LENGTH_PER_TOKEN = 4;
