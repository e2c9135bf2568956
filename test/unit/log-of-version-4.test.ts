import { createHash } from "node:crypto";
import type { ErrorFields } from "@responses-edge/responses-api/errors";
import { describe, expect, it } from "vitest";
import { failureInPlacedLog, isPlacedLog, readPlacedLog } from "../../src/store/home/log-of-version-4.ts";
import recorded from "./recordings/logs-of-version-4.json?raw";

/** Logs of ended runs in the form of versions 4 to 7. */
interface RecordedLog {
  name: string;
  kept: string;
  /** Response and output of the turn. */
  text: string;
  /** The number of events in the log, and the SHA-256 of their lines. */
  events: number;
  sha256: string;
  failure?: ErrorFields;
}

function eventsAfter({ kept, text }: RecordedLog, after: number): string[] {
  const events: string[] = [];
  for (let block = readPlacedLog(kept, text, after); block; block = readPlacedLog(kept, text, block.to)) {
    expect(block.from).toBe(after + 1 + events.length);
    events.push(...block.events);
    expect(block.to).toBe(after + events.length);
  }
  return events;
}

describe("a log of versions 4 to 7", () => {
  it.each(JSON.parse(recorded) as RecordedLog[])("is read byte for byte, from any event on: $name", (log) => {
    expect(isPlacedLog(log.kept)).toBe(true);
    const events = eventsAfter(log, -1);
    expect(events).toHaveLength(log.events);
    expect(createHash("sha256").update(events.join("\n")).digest("hex")).toBe(log.sha256);
    for (const after of [0, 3, 17, log.events - 2, log.events - 1])
      expect(eventsAfter(log, after)).toEqual(events.slice(after + 1));
    expect(failureInPlacedLog(log.kept)).toEqual(log.failure);
  });
});
