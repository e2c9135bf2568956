import { expect, it } from "vitest";
import { plainly } from "../../scripts/workerd-words.ts";

it("a name that nobody knows is a line in the console, and no stack", () => {
  const fault = "failed to lookup address information: Name or service not known";
  expect(plainly(`workerd/jsg/util.c++:320: error: e = rust/worker/ffi.rs:104: failed: ${fault}`)).toBe(
    `workerd: ${fault}`,
  );
  expect(plainly("stack: /some/workerd@2b5edc0 /some/workerd@3fe4230; wdErrId = f6ir3d86")).toBeUndefined();
});

it("what the Worker prints is printed as it is", () => {
  const line = '{"level":"error","error":"Error"}';
  expect(plainly(line)).toBe(line);
  expect(plainly("")).toBe("");
});
