import type { EngineName } from "../config/index.ts";

/** A model as the client names it and as vLLM does, and how it is spoken to. */
export interface Model {
  name: string;
  upstream: string;
  engine: EngineName;
}
