import { shownTiming } from "@responses-edge/turn/timing";

/** A response as two JSON texts: everything but `output`, and `output`. And its times, if they are known. */
export interface StoredResponse {
  head: string;
  output: string;
  keptTiming: string | null;
}

/** The times of a response as JSON for a client; `null` while they are unknown. */
export function timingOf({ head, output, keptTiming }: StoredResponse): string {
  if (keptTiming === null) return "null";
  const { model } = JSON.parse(head) as { model: string };
  const items = (JSON.parse(output) as { id?: string }[]).map(({ id = "" }) => id);
  return JSON.stringify(shownTiming(keptTiming, { model, items }));
}
