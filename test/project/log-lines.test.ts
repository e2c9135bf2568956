import { expect, it } from "vitest";
import { shownLine } from "../../cli/log-lines.ts";

const fault = "failed to lookup address information: Name or service not known";
const said = (message: string, level = "error", source: string | null = "workerd/jsg/util.c++:320") =>
  JSON.stringify({ timestamp: "1795373428063", level, ...(source && { source }), message, context_depth: 0 });

it("a name that nobody knows is a line in the console, and no stack", () => {
  const line = said(`e = rust/worker/ffi.rs:104: failed: ${fault}\nstack: /some/workerd@2b5edc0; wdErrId = f6ir3d86`);
  expect(shownLine(line, "text")).toBe(`workerd: ${fault}`);
  expect(JSON.parse(shownLine(line, "json") ?? "")).toMatchObject({ level: "error", message: `workerd: ${fault}` });
});

it("an exception that nobody has caught is told without its stack", () => {
  const line = said("Uncaught exception: workerd/jsg/value.h:1456: failed: remote.jsg.Error: boo\n  at f (index.js:7)");
  expect(shownLine(line, "text")).toBe("workerd: Error: boo");
});

it("what workerd says before it has read its configuration is told, too", () => {
  expect(shownLine(`workerd/jsg/util.c++:320: error: e = rust/worker/ffi.rs:104: failed: ${fault}`, "text")).toBe(
    `workerd: ${fault}`,
  );
  expect(shownLine("stack: /some/workerd@2b5edc0 /some/workerd@3fe4230; wdErrId = f6ir3d86", "text")).toBeUndefined();
});

it.each(["text", "json"] as const)("what the Worker prints is printed as it is, as %s", (format) => {
  const line = '{"level":"error","error":"Error"}';
  expect(shownLine(said(line, "error", null), format)).toBe(line);
});
