import { newTrace, readTraceContext, traceparent } from "@responses-edge/otlp";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";

describe("a trace context", () => {
  it("is read as W3C's recommendation has it", () => {
    const read = (traceparent: string, tracestate: string | null = null) => readTraceContext(traceparent, tracestate);
    expect(read(`00-${TRACE_ID}-${PARENT}-01`, "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE")).toEqual({
      ...{ traceId: TRACE_ID, parent: PARENT, isSampled: true },
      state: "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
    });
    expect(read(`00-${TRACE_ID}-${PARENT}-02`)?.isSampled).toBe(false);
    // A later version may say more behind what is known.
    expect(read(`01-${TRACE_ID}-${PARENT}-03-more`)?.isSampled).toBe(true);
    for (const wrong of [
      "",
      `ff-${TRACE_ID}-${PARENT}-01`,
      `00-${TRACE_ID}-${PARENT}-01-more`,
      `00-${TRACE_ID.toUpperCase()}-${PARENT}-01`,
      `00-${"0".repeat(32)}-${PARENT}-01`,
      `00-${TRACE_ID}-${"0".repeat(16)}-01`,
      `01-${TRACE_ID}-${PARENT}-01-${"x".repeat(300)}`,
    ]) {
      expect(read(wrong), wrong).toBeUndefined();
    }
  });

  it.each([
    ["too long", `a=${"x".repeat(511)}`],
    ["of too many members", Array.from({ length: 33 }, (_, index) => `k${index}=v`).join()],
    ["with a key twice", "a=1,a=2"],
    ["without a value", "a="],
    ["with a key that is none", "A=1"],
    ["with what is not ASCII", "a=é"],
    ["without members", " , "],
  ])("is without a tracestate that is %s", (_, state) => {
    expect(readTraceContext(`00-${TRACE_ID}-${PARENT}-01`, state)).toEqual({
      ...{ traceId: TRACE_ID, parent: PARENT, isSampled: true, state: undefined },
    });
  });

  it("gives nothing, or ids that can be forwarded, for any header of a caller", () => {
    const hostile = fc.oneof(
      fc.string(),
      fc.stringMatching(/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.{0,9}$/),
    );
    fc.assert(
      fc.property(hostile, fc.option(fc.string()), (traceparent, tracestate) => {
        const read = readTraceContext(traceparent, tracestate);
        if (!read) return;
        expect(read.traceId).toMatch(/^[0-9a-f]{32}$/);
        expect(read.parent).toMatch(/^[0-9a-f]{16}$/);
        expect(read.state ?? "a=b").toMatch(/^[\x20-\x7e]{1,512}$/);
      }),
      { numRuns: 500 },
    );
  });
});

it("is handed on with the span of who calls, and not where that is switched off", () => {
  const remote = readTraceContext(`00-${TRACE_ID}-${PARENT}-01`, null);
  const settings = { traces: {}, sampler: { ratio: 0, asksParent: true }, forwardsTraces: true };
  const trace = newTrace(settings, remote);
  expect(traceparent(trace, "b7ad6b7169203331")).toBe(`00-${TRACE_ID}-b7ad6b7169203331-01`);
  expect(traceparent(trace)).toBe(`00-${TRACE_ID}-${trace?.span}-01`);
  expect(traceparent(newTrace({ ...settings, forwardsTraces: false }, remote))).toBeUndefined();
});
