import type { Parsed } from "./json.ts";

/** Scripts beside this one that are being loaded, by name. */
const loading: Map<string, Promise<Parsed>> = new Map();

/** Loads a script that was bundled by itself; again if that has failed. */
export function beside(name: string) {
  const known =
    loading.get(name) ??
    import(new URL(name, import.meta.url).href).catch((error) => {
      loading.delete(name);
      throw error;
    });
  loading.set(name, known);
  return known;
}

export function loadLater(): Promise<typeof import("./later.ts")> {
  return beside("later.js");
}

/** Does some work when the page has nothing else to do. */
export function whenIdle(work: () => void) {
  if ("requestIdleCallback" in window) requestIdleCallback(work, { timeout: 1_000 });
  else setTimeout(work, 200);
}
