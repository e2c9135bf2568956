import { ApiError } from "@responses-edge/responses-api/errors";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { followResponse } from "../../src/api/run-events.ts";
import type { Caller } from "../../src/api/transport.ts";
import { readHomeUrl } from "../../src/store/objects/rpc.ts";

/** The events of a run as a client gets them, whatever becomes of the instances of its home. */

const encoder = new TextEncoder();

/** A run's events. Their numbers are first, in the middle, or last, as those of the log are. */
function eventsOf(texts: readonly string[]): string[] {
  return texts.map((delta, index) => {
    const fields = index % 2 ? { sequence_number: index, delta } : { delta, sequence_number: index };
    return `event: response.output_text.delta\ndata: ${JSON.stringify({ type: "response.output_text.delta", ...fields })}\n\n`;
  });
}

/** A body that gives these pieces, and then ends as it is said. */
function bodyOf(pieces: readonly Uint8Array[], end: "ends" | "breaks"): ReadableStream<Uint8Array> {
  const left = [...pieces];
  return new ReadableStream({
    pull(controller) {
      const piece = left.shift();
      if (piece) controller.enqueue(piece);
      else if (end === "ends") controller.close();
      else controller.error(new Error("The object was handed over."));
    },
  });
}

/** Cuts bytes at these places. */
function cut(bytes: Uint8Array, places: readonly number[]): Uint8Array[] {
  const at = [0, ...places.filter((place) => place > 0 && place < bytes.length).sort((a, b) => a - b), bytes.length];
  return at.slice(1).map((end, index) => bytes.slice(at[index], end));
}

/** What a client reads if its home answers so, and the numbers after which it was asked. */
async function read(answer: (after: number, question: number) => Response | undefined) {
  const asked: number[] = [];
  const waiting: Promise<unknown>[] = [];
  const fetch = async (url: string) => {
    const question = readHomeUrl(url);
    if (question?.kind !== "events") throw new Error(url);
    asked.push(question.after);
    return answer(question.after, asked.length);
  };
  const caller = {
    homes: { ask: async (_home: string, _none: null, call: (home: object) => unknown) => call({ fetch }) },
    signal: new AbortController().signal,
    waitUntil: (promise: Promise<unknown>) => waiting.push(promise),
  } as unknown as Caller;
  const body = await followResponse(caller, { home: "h", turn: "t" }, { after: -1, obfuscation: true });
  const text = await new Response(body).text().catch(() => "broken off");
  await Promise.all(waiting);
  return { text, asked };
}

describe("a client of a run", () => {
  it("gets the same bytes, wherever its home's instances break off, and however their bytes are cut", async () => {
    const texts = fc.array(fc.constantFrom("a", "\n\n", "é", "data: [DONE]", 'x"sequence_number":9', "y".repeat(300)), {
      minLength: 1,
      maxLength: 12,
    });
    const instance = fc.record({
      bytes: fc.nat(1_500),
      cuts: fc.array(fc.nat(1_500), { maxLength: 5 }),
      beats: fc.boolean(),
      end: fc.constantFrom("ends" as const, "breaks" as const),
    });
    await fc.assert(
      fc.asyncProperty(texts, fc.array(instance, { maxLength: 4 }), async (said, instances) => {
        const events = eventsOf(said);
        // One that gives nothing new is asked again after a while: each gives one event at least.
        const { text } = await read((after, question) => {
          const rest = events.slice(after + 1);
          const { bytes, cuts, beats, end } = instances[question - 1] ?? {
            bytes: Number.POSITIVE_INFINITY,
            ...{ cuts: [], beats: false, end: "ends" as const },
          };
          const whole = encoder.encode(`${beats ? ": heartbeat\n\n" : ""}${rest.join("")}data: [DONE]\n\n`);
          const least = (beats ? 13 : 0) + encoder.encode(rest[0] ?? "data: [DONE]\n\n").length;
          const given = whole.slice(0, Math.max(least, bytes));
          return new Response(bodyOf(cut(given, cuts), end));
        });
        expect(text.replaceAll(": heartbeat\n\n", "")).toBe(`${events.join("")}data: [DONE]\n\n`);
      }),
      { numRuns: 200 },
    );
  });

  it("sees its stream break off when the response is deleted with its home's instance", async () => {
    const [first = ""] = eventsOf(["a"]);
    const { text, asked } = await read((_, question) =>
      question === 1 ? new Response(bodyOf([encoder.encode(first)], "breaks")) : new Response(null, { status: 404 }),
    );
    expect(text).toBe("broken off");
    expect(asked).toEqual([-1, 0]);
  });

  it("waits while its home cannot be asked, and is told nothing twice", async () => {
    const [first = "", second = ""] = eventsOf(["a", "b"]);
    const { text, asked } = await read((after, question) => {
      if (question === 2) throw new ApiError({ status: 503, message: "It is moving.", code: "object_unreachable" });
      const rest = after === -1 ? first : `${second}data: [DONE]\n\n`;
      return new Response(bodyOf([encoder.encode(rest)], after === -1 ? "breaks" : "ends"));
    });
    expect(text).toBe(`${first}${second}data: [DONE]\n\n`);
    expect(asked).toEqual([-1, 0, 0]);
  });
});
