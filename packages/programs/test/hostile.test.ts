import { env } from "cloudflare:workers";
import { BOUNDS, loaderRunner, type ProgramStep } from "@responses-edge/programs";
import { describe, expect, it } from "vitest";

/**
 * Programs that want more than their tools, and that change what they find. None does any harm but to itself. Those that never
 * end need a process that can be ended.
 */

const { PROGRAM_LOADER } = env as unknown as { PROGRAM_LOADER: WorkerLoader };
const runner = loaderRunner(PROGRAM_LOADER);

const step = (code: string, tenant = "acme"): Promise<ProgramStep> =>
  runner.step({ code, tools: ["stock"], seed: "1", startedAt: 0, results: [] }, tenant, new AbortController().signal);

const ended = (status: "completed" | "failed", output: unknown) => ({ type: "ended", status, output });

describe("a program", () => {
  it("finds the language, its tools, and nothing that reaches out of its isolate", async () => {
    const names =
      "fetch WebSocket EventSource connect caches process Buffer require module self navigator WebAssembly SharedArrayBuffer " +
      "Atomics WeakRef FinalizationRegistry eval addEventListener postMessage MessageChannel scheduler Response Cloudflare " +
      "ServiceWorkerGlobalScope setImmediate reportError";
    const code = `const found = [];
      for (let holder = globalThis; holder; holder = Object.getPrototypeOf(holder)) found.push(...Reflect.ownKeys(holder));
      return ${JSON.stringify(names)}.split(" ").filter((name) => found.includes(name) || globalThis[name] !== undefined);`;
    expect(await step(code)).toEqual(ended("completed", "[]"));
  });

  it("shares nothing with another one, of the same tenant or another", async () => {
    const code = "globalThis.seen ??= 0; Array.prototype.seen ??= 0; return [seen++, Array.prototype.seen++];";
    for (const tenant of ["acme", "acme", "other"])
      expect(await step(code, tenant)).toEqual(ended("completed", "[0,0]"));
  });

  it.each<[how: string, code: string, output: RegExp]>([
    ["through its caller", "return arguments.callee.caller;", /^TypeError: 'caller', 'callee'/],
    ["through constructors", "return (async () => {}).constructor('return 1')();", /^EvalError: /],
    [
      "through the stack",
      "Error.prepareStackTrace = (_, at) => at.map((each) => each.getFunction() ?? each.getThis()); throw new Error().stack;",
      /^Uncaught \[null/,
    ],
    ["with a module", "const { connect } = await import('cloudflare:sockets'); connect('127.0.0.1:80');", /no import/],
    ["with the end of its function", "} export const a = 1; {", /^SyntaxError: /],
    ["by recursion", "const again = () => again(); again();", /^RangeError: Maximum call stack/],
    [
      "by arguments that nest",
      "let a = 1; for (let i = 0; i < 300; i += 1) a = [a]; await tools.stock(a);",
      /nested too deeply/,
    ],
    [
      "by arguments that nest further",
      "let a = 1; for (let i = 0; i < 1e5; i += 1) a = [a]; await tools.stock(a);",
      /stack/,
    ],
    ["by many arguments", "await tools.stock(new Array(2e5).fill(0));", /too many values/],
    ["by a getter that throws", "await tools.stock({ get sku() { throw new Error('mine'); } });", /^Error: mine/],
    ["by an error without a text", "throw { get stack() { throw 1; }, toJSON() { throw 2; } };", /no text/],
  ])("does not escape %s: that is its failure", async (_, code, output) => {
    expect(await step(code)).toEqual(ended("failed", expect.stringMatching(output)));
  });

  it.each<[what: string, forged: unknown]>([
    [
      "a call of a tool that it does not have",
      { type: "calls", calls: [{ sequence: 0, name: "admin", arguments: {} }], console: "" },
    ],
    [
      "a call beyond its bound",
      { type: "calls", calls: [{ sequence: BOUNDS.calls, name: "stock", arguments: {} }], console: "" },
    ],
    [
      "a call twice",
      { type: "calls", calls: [0, 0].map((sequence) => ({ sequence, name: "stock", arguments: {} })), console: "" },
    ],
    ["a call without arguments", { type: "calls", calls: [{ sequence: 0, name: "stock" }], console: "" }],
    ["calls that are no list", { type: "calls", calls: { length: 1 }, console: "" }],
    ["an output that is no text", { type: "ended", status: "completed", output: { length: 9 } }],
    ["another end", { type: "ended", status: "cancelled", output: "" }],
    ["no step", null],
  ])("that answers in the place of its isolate cannot forge %s", async (_, forged) => {
    const code = `Object.prototype.toJSON = function () { return "type" in this ? ${JSON.stringify(forged)} : this; };`;
    expect(await step(code)).toEqual(ended("failed", "The program has changed what runs it."));
  });

  it("that has changed the language's own functions does not change what others get", async () => {
    const code = `Promise.prototype.then = () => {}; JSON.stringify = () => "{}"; Array.prototype[Symbol.iterator] = null;
      Map.prototype.get = Map.prototype.set = () => { throw 1; }; await tools.stock();`;
    await step(code);
    expect(await step("return [...[1, 2]];")).toEqual(ended("completed", "[1,2]"));
  });

  it("that floods its output is cut, and its rejections are named", async () => {
    const flood = await step(
      "for (let i = 0; i < 1e4; i += 1) console.log('x'.repeat(1e3)); Promise.reject(new Error('lost'));",
    );
    expect(flood).toMatchObject({ type: "ended", status: "completed" });
    expect("output" in flood && flood.output.length).toBeLessThan(BOUNDS.outputLength + 100);
    expect(await step("Promise.reject(new Error('lost')); return 1;")).toEqual(
      ended("completed", "Uncaught (in promise) Error: lost (line 1)\n1"),
    );
  });
});
