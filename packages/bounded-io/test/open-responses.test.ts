import { inOpenResponses, openResponsesStream } from "@responses-edge/bounded-io/event-stream/open-responses";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { codePoint } from "../../../test/code-points.ts";

const NAMES: Record<string, string> = {
  "response.reasoning_text.delta": "response.reasoning.delta",
  "response.reasoning_text.done": "response.reasoning.done",
};

/** Possible output of a model, including names and line separators. */
const said = fc.oneof(
  fc.string({ unit: codePoint }),
  fc.constantFrom(
    'data: {"type":"response.reasoning_text.delta"}',
    "\u2028event: response.reasoning_text.delta",
    "\nevent: response.reasoning_text.done\n",
  ),
);
const events = fc.array(
  fc.record({
    type: fc.constantFrom(...Object.keys(NAMES), "response.output_text.delta", "response.reasoning_summary_text.delta"),
    delta: said,
  }),
);

function written(all: readonly { type: string; delta: string }[]): string {
  return all.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");
}

function renamed<Event extends { type: string }>(event: Event): Event {
  return { ...event, type: NAMES[event.type] ?? event.type };
}

it("renames the events of reasoning in a stream, however its bytes are cut, and nothing that a model has said", async () => {
  await fc.assert(
    fc.asyncProperty(events, fc.array(fc.nat(400)), async (all, cuts) => {
      const bytes = new TextEncoder().encode(written(all));
      const places = [
        0,
        ...cuts.filter((cut) => cut < bytes.length).toSorted((one, other) => one - other),
        bytes.length,
      ];
      const chunks = places.slice(1).map((end, index) => bytes.slice(places[index], end));
      const source = new ReadableStream<Uint8Array>({
        pull(controller) {
          const chunk = chunks.shift();
          if (chunk) controller.enqueue(chunk);
          else controller.close();
        },
      });
      const stream = openResponsesStream(source);
      expect(await new Response(stream).text()).toBe(written(all.map(renamed)));
    }),
  );
});

it("renames an event's JSON", () => {
  fc.assert(
    fc.property(events, (all) => {
      for (const event of all) expect(JSON.parse(inOpenResponses(JSON.stringify(event)))).toEqual(renamed(event));
    }),
  );
});
