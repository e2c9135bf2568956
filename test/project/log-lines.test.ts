import { globSync, readFileSync } from "node:fs";
import { Readable } from "node:stream";
import { logLine } from "@responses-edge/bounded-io/json-text";
import fc from "fast-check";
import { expect, it } from "vitest";
import { followLines, shownLine } from "../../cli/serve/log-lines.ts";
import { codePoint } from "../code-points.ts";

const fault = "failed to lookup address information: Name or service not known";
const said = (message: string, level = "error", source: string | null = "workerd/jsg/util.c++:320") =>
  JSON.stringify({ timestamp: "1795373428063", level, ...(source && { source }), message, context_depth: 0 });

it("an unknown host name is a line in the console, without a stack", () => {
  const line = said(`e = rust/worker/ffi.rs:104: failed: ${fault}\nstack: /some/workerd@2b5edc0; wdErrId = f6ir3d86`);
  expect(shownLine(line, "text")).toBe(`workerd: ${fault}`);
  expect(JSON.parse(shownLine(line, "json") ?? "")).toMatchObject({ level: "error", message: `workerd: ${fault}` });
});

it("an uncaught exception is logged without its stack", () => {
  const line = said("Uncaught exception: workerd/jsg/value.h:1456: failed: remote.jsg.Error: boo\n  at f (index.js:7)");
  expect(shownLine(line, "text")).toBe("workerd: Error: boo");
});

it("workerd's output before it has read its configuration is logged, too", () => {
  expect(shownLine(`workerd/jsg/util.c++:320: error: e = rust/worker/ffi.rs:104: failed: ${fault}`, "text")).toBe(
    `workerd: ${fault}`,
  );
  expect(shownLine("stack: /some/workerd@2b5edc0 /some/workerd@3fe4230; wdErrId = f6ir3d86", "text")).toBeUndefined();
});

it("workerd's line about its own flags at each start is not printed", () => {
  const note =
    "NOSENTRY per-isolate bootstrap compile cache failed its compatibility check; scripts will be compiled from source";
  expect(shownLine(said(note, "info"), "text")).toBeUndefined();
});

it("readers of runs whose streams end with the process are no errors", () => {
  expect(shownLine(said("Uncaught exception: remote.jsg.Error: The stream was given up."), "json")).toBeUndefined();
});

it.each(["text", "json"] as const)("the Worker's output is printed unchanged, as %s", (format) => {
  const line = '{"level":"error","error":"Error"}';
  expect(shownLine(said(line, "error", null), format)).toBe(line);
});

/** All line ends that a reader of logs may recognise. */
const ENDS = ["\n", "\r", "\r\n", "\v", "\f", "\u001c", "\u001d", "\u001e", "\u0085", "\u2028", "\u2029"];
const hostile = fc
  .array(
    fc.oneof(
      fc.string({ unit: codePoint }),
      fc.constantFrom(...ENDS, '{"event":"request"}', "stack: ", "\u007f", "\u009b"),
    ),
  )
  .map((parts) => parts.join(""));

it("a line of the log is one line for every reader, with any text in its fields", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.dictionary(fc.string({ minLength: 1 }), hostile),
      fc.integer({ min: 1, max: 50 }),
      async (fields, size) => {
        const { __proto__: _, ...told } = fields;
        const event = { event: "request", told, status: 200 };
        const line = logLine(event);
        for (const end of ENDS) expect(line.split(end)).toHaveLength(1);
        expect(JSON.parse(line)).toEqual(event);
        // The lines arrive as from workerd: in any pieces, and between other lines.
        const bytes = Buffer.from(`${said("before", "info")}\n${said(line, "log", null)}\n${said("after", "info")}`);
        const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
          bytes.subarray(at * size, (at + 1) * size),
        );
        const shown: string[] = [];
        await followLines(Readable.from(pieces, { objectMode: false }), "json", (each) => shown.push(each));
        expect(shown).toHaveLength(3);
        expect(shown[1]).toBe(line);
      },
    ),
  );
});

it("workerd's message about a hostile text is one line, too", () => {
  fc.assert(
    fc.property(hostile, fc.constantFrom("text", "json"), (text, format) => {
      for (const line of [said(text), said(`{${text}`, "log", null), JSON.stringify(text)]) {
        for (const end of ENDS) expect((shownLine(line, format as "text" | "json") ?? "").split(end)).toHaveLength(1);
      }
    }),
  );
});

it("the Worker writes its log only by `logLine`", () => {
  for (const file of globSync("src/**/*.ts", { cwd: new URL("../..", import.meta.url).pathname })) {
    const text = readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
    for (const [, call] of text.matchAll(/console\.\w+\((\w*)/g)) expect(call, file).toBe("logLine");
  }
});
