import { env } from "cloudflare:workers";
import { BOUNDS, loaderRunner, type ProgramResult, type ProgramStep } from "@responses-edge/programs";
import { describe, expect, it } from "vitest";

const { PROGRAM_LOADER } = env as unknown as { PROGRAM_LOADER: WorkerLoader };
const runner = loaderRunner(PROGRAM_LOADER);

/** A step of a program, which starts at 2026-01-02T03:04:05.006Z. */
function step(code: string, results: readonly ProgramResult[] = [], seed = "call_1"): Promise<ProgramStep> {
  const startedAt = Date.UTC(2026, 0, 2, 3, 4, 5, 6);
  return runner.step(
    { code, tools: ["stock", "order"], seed, startedAt, results },
    "acme",
    new AbortController().signal,
  );
}

async function outputOf(code: string, results?: readonly ProgramResult[]): Promise<string> {
  const ended = await step(code, results);
  expect(ended).toMatchObject({ type: "ended", status: "completed" });
  return "output" in ended ? ended.output : "";
}

async function failureOf(code: string, results?: readonly ProgramResult[]): Promise<string> {
  const ended = await step(code, results);
  expect(ended).toMatchObject({ type: "ended", status: "failed" });
  return "output" in ended ? ended.output : "";
}

describe("a program", () => {
  it("writes with text and console, and then the value that it returns", async () => {
    const code = `text("a"); console.log("b", 1, null, { c: [2n] }, new Map([["d", 3]])); console.error(new TypeError("e"));
      return { f: 4 };`;
    expect(await outputOf(code)).toBe('a\nb 1 null {"c":["2"]} [["d",3]]\nTypeError: e (line 1)\n{"f":4}');
  });

  it("stops at its calls, and goes on with their results, in the order in which these came", async () => {
    const code = `const seen = [];
      const one = tools.stock({ sku: "a" }).then((value) => { seen.push(value); return tools.order(value); });
      const two = tools.stock({ sku: "b" }).catch((error) => seen.push(error.message));
      console.log("asked");
      await Promise.all([one, two]);
      return seen;`;
    const first = await step(code);
    expect(first).toEqual({
      type: "calls",
      calls: [
        { sequence: 0, name: "stock", arguments: { sku: "a" } },
        { sequence: 1, name: "stock", arguments: { sku: "b" } },
      ],
      console: "asked",
    });
    const results: ProgramResult[] = [{ sequence: 1, error: "no b" }];
    expect(await step(code, results)).toMatchObject({ calls: [{ sequence: 0 }] });
    results.push({ sequence: 0, call: { name: "stock", arguments: { sku: "a" } }, output: { units: 5 } });
    expect(await step(code, results)).toMatchObject({
      calls: [{ sequence: 2, name: "order", arguments: { units: 5 } }],
    });
    expect(await outputOf(code, [...results, { sequence: 2, output: "done" }])).toBe('asked\n["no b",{"units":5}]');
  });

  it("may use the word import", async () => {
    expect(await outputOf('const a = { import: (b) => b + ". import. " }; return a.import("import");')).toBe(
      "import. import. ",
    );
  });

  it("ends after all its calls, with those that it did not await", async () => {
    const code = "tools.order({ sku: 'a' }); return 'sent';";
    expect(await step(code)).toMatchObject({ type: "calls", calls: [{ name: "order" }] });
    expect(await outputOf(code, [{ sequence: 0, output: null }])).toBe("sent");
    expect(await outputOf(code, [{ sequence: 0, error: "down" }])).toContain("Uncaught (in promise) Error: down");
  });

  it("has the same clock, timers and random numbers in each step", async () => {
    const code = `const out = [Date.now(), new Date().toISOString(), Date(), performance.now(), Math.random(), crypto.randomUUID(),
        crypto.getRandomValues(new Uint32Array(2)).join(), new Intl.DateTimeFormat("en").format()];
      let ticks = 0;
      const timer = setInterval(() => { ticks += 1; }, 250);
      await Promise.all([new Promise((done) => setTimeout(done, 1000)), tools.stock().catch(() => {})]);
      clearInterval(timer);
      return [...out, ticks, Date.now() - out[0], performance.now(), Math.random()];`;
    await step(code);
    const result = { sequence: 0, output: 1 };
    const output = await outputOf(code, [result]);
    expect(JSON.parse(output)).toEqual([
      1767323045006,
      "2026-01-02T03:04:05.006Z",
      "Fri Jan 02 2026 03:04:05 GMT+0000 (Coordinated Universal Time)",
      0,
      expect.any(Number),
      expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/),
      expect.any(String),
      "1/2/2026",
      ...[4, 1000, 1000, expect.any(Number)],
    ]);
    expect(await outputOf(code, [result])).toBe(output);
    const other = await step(code, [result], "call_2");
    expect(other).not.toMatchObject({ output });
  });

  it.each<[what: string, code: string, failure: string]>([
    ["a syntax error, with its line", "const a = 1;\nconst b = ;", "SyntaxError: Unexpected token ';' (line 2)"],
    ["a text that is no body of a function", "}; export const a = 1; async () => {", "SyntaxError: "],
    ["an import", 'import fs from "node:fs";', "SyntaxError: "],
    [
      "an error, with its line",
      "let a;\n\na.b;",
      "TypeError: Cannot read properties of undefined (reading 'b') (line 3)",
    ],
    ["a thrown value", "console.log('x'); throw { code: 7 };", 'x\nUncaught {"code":7}'],
    ["an unknown tool", "await tools.buy();", "TypeError: tools.buy is not a function (line 1)"],
    [
      "a promise that nothing settles",
      "await new Promise(() => {});",
      "The program waits for a promise that nothing settles.",
    ],
    [
      "arguments that are no JSON",
      "await tools.stock(() => {});",
      "TypeError: The arguments of stock are no JSON value.",
    ],
    ["a dynamic import", "await import('node:process');", "SyntaxError: A program has no import(…)."],
    [
      "one in disguise",
      "[...import /* a */ // b\n <!-- c\n ('node:process')];",
      "SyntaxError: A program has no import(…).",
    ],
    ["code made from a text", "new Function('return 1')();", "EvalError: "],
  ])("fails by %s", async (_, code, failure) => {
    expect(await failureOf(code)).toContain(failure);
  });

  it.each<[what: string, result: ProgramResult]>([
    ["has other arguments", { sequence: 0, call: { name: "stock", arguments: { sku: "z" } }, output: 1 }],
    ["is of another tool", { sequence: 0, call: { name: "order", arguments: { sku: "a" } }, output: 1 }],
    ["was not made", { sequence: 1, output: 1 }],
  ])("is not deterministic if a call of its record %s", async (_, result) => {
    expect(await failureOf('await tools.stock({ sku: "a" });', [result])).toContain("The program is not deterministic");
  });

  it("has bounds of its code, calls, arguments, timers and output", async () => {
    expect(await failureOf("/".repeat(BOUNDS.codeLength + 1))).toContain("longer than");
    expect(await failureOf("for (;;) { let p = tools.stock(); await Promise.race([p, null]); }")).toContain(
      "at most 1000 calls",
    );
    expect(await failureOf("await tools.stock('x'.repeat(1e6));")).toContain("have at most");
    const output = "x".repeat(BOUNDS.resultLength);
    expect(await failureOf("await tools.stock();", [{ sequence: 0, output }])).toContain("results have more than");
    expect(await failureOf("for (;;) setTimeout(() => {});")).toContain("at most 1000 timers");
    expect(await failureOf("console.log('x'.repeat(3e5)); null.a;")).toMatch(/x\n\[Cut: .*\]\nTypeError/);
  });
});
