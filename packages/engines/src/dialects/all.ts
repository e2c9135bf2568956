import type { Dialect, DialectName } from "./dialect.ts";
import { llamacpp } from "./llamacpp.ts";
import { ollama } from "./ollama.ts";
import { openai } from "./openai.ts";
import { sglang } from "./sglang.ts";
import { vllm } from "./vllm.ts";

/** Every dialect, by its name. A dialect is a file of facts beside this one, and a name in `dialect.ts`. */
export const DIALECTS: Readonly<Record<DialectName, Dialect>> = { vllm, llamacpp, sglang, ollama, openai };

/** The known dialects of several owners. */
export function dialectsOfOwners(owners: readonly string[]): Dialect[] {
  return owners.flatMap((owner) => dialectOfOwner(owner) ?? []);
}

/** The dialect of servers whose model cards have this owner. */
export function dialectOfOwner(owner: string): Dialect | undefined {
  return Object.values(DIALECTS).find((dialect) => dialect.owner === owner);
}
