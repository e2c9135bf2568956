import type { ResponseCreateParamsNonStreaming } from "openai/resources/beta/responses/responses";

/** Bodies of OpenAI's beta, whose types have the same names as others. Read as text, never imported. */
export interface Roots {
  beta_create: ResponseCreateParamsNonStreaming;
}
