import { DIALECTS } from "./all.ts";
import type { Dialect } from "./dialect.ts";

/**
 * The kind of a server, by the one path that no other kind has. `ask` gives the JSON of a path, or null for another
 * answer, and rejects if there is none. Undefined if the server is none of the known kinds, and a path had no answer.
 */
export async function probedDialect(ask: (path: string) => Promise<unknown>): Promise<Dialect | undefined> {
  let isSilent = false;
  const found = await Promise.all(
    Object.values(DIALECTS).map(async (dialect) => {
      const { probe } = dialect;
      if (!probe) return undefined;
      try {
        const answer = await ask(probe.path);
        return typeof answer === "object" && answer !== null && probe.field in answer ? dialect : undefined;
      } catch {
        isSilent = true;
        return undefined;
      }
    }),
  );
  return found.find((dialect) => dialect !== undefined) ?? (isSilent ? undefined : DIALECTS.openai);
}
