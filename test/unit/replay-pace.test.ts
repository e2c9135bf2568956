import { describe, expect, it } from "vitest";
import { clockOf, pacedEvents, timesOf } from "../../src/api/replay-pace.ts";

/** The pace of a replay. */

const text = (value: string) => ({ type: "message", content: [{ type: "output_text", text: value }] });

/** A response with these items, begun and ended at these times. */
function timed(items: object[], times: [began: number, ended: number][], settled: number) {
  const kept = [0, 0, settled, [], [], times.flatMap(([began, ended]) => [began, ended - began]), 0, 0];
  return timesOf({
    head: JSON.stringify({ model: "m" }),
    output: JSON.stringify(items),
    keptTiming: JSON.stringify(kept),
  });
}

describe("the time of an event in a replay", () => {
  it("is that of its item's beginning, of its share of the text, of the item's end, and of the response's end", () => {
    const times = timed(
      [text("12345678"), { type: "function_call", arguments: "{}" }],
      [
        [100, 300],
        [310, 330],
      ],
      400,
    );
    if (!times) throw new Error("There are no times.");
    const timeOf = clockOf(times);
    const of = (type: string, output_index?: number, delta?: string) =>
      timeOf(`response.${type}`, { ...(output_index !== undefined && { output_index }), ...(delta && { delta }) });
    expect([of("created"), of("in_progress")]).toEqual([0, 0]);
    expect([of("output_item.added", 0), of("content_part.added", 0)]).toEqual([100, 100]);
    expect([of("output_text.delta", 0, "1234"), of("output_text.delta", 0, "5678")]).toEqual([200, 300]);
    expect(of("output_item.done", 0)).toBe(300);
    expect([of("output_item.added", 1), of("function_call_arguments.delta", 1, "{")]).toEqual([310, 320]);
    // An item without times comes at once.
    expect(of("output_item.added", 2)).toBe(320);
    expect(of("completed")).toBe(400);
  });

  it("is at most an hour, whatever an import says", () => {
    expect(timed([text("a")], [[0, 1e15]], 1e15)).toMatchObject({ items: [{ ended: 3_600_000 }], settled: 3_600_000 });
  });

  it("is unknown where no times are kept, or unreadable ones", () => {
    const of = (keptTiming: string | null) => timesOf({ head: '{"model":"m"}', output: "[]", keptTiming });
    expect([of(null), of("{}")]).toEqual([undefined, undefined]);
  });
});

describe("paced events", () => {
  it("are the same bytes, wherever the stream is cut", async () => {
    const frames = [
      'event: response.created\ndata: {"type":"response.created"}\n\n',
      ": heartbeat\n\n",
      'event: response.output_text.delta\ndata: {"output_index":0,"delta":"ü"}\n\n',
      "data: [DONE]\n\n",
    ].join("");
    const bytes = new TextEncoder().encode(frames);
    for (const size of [1, 7, 1000]) {
      const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
        bytes.subarray(at * size, (at + 1) * size),
      );
      const sent = new Response(
        new ReadableStream({
          start(controller) {
            for (const piece of pieces) controller.enqueue(piece);
            controller.close();
          },
        }),
      );
      const paced = pacedEvents(sent.body as ReadableStream<Uint8Array>, {
        times: { items: [{ began: 0, ended: 5, length: 1 }], settled: 5 },
        speed: 1000,
        heartbeatMs: 1000,
        signal: new AbortController().signal,
      });
      expect(await new Response(paced).text()).toBe(frames);
    }
  });
});
