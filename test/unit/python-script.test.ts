import { expect, it } from "vitest";
import { unwrapScript } from "../../src/tools/python/plugin.ts";

it("a script for python is unwrapped", () => {
  expect(unwrapScript('{"code":"print(1)\\n"}')).toBe("print(1)\n");
  expect(unwrapScript("```python\nprint(1)\nprint(2)\n```")).toBe("print(1)\nprint(2)");
  expect(unwrapScript("print(1)\n")).toBe("print(1)\n");
  expect(unwrapScript("{1: 2}")).toBe("{1: 2}");
  expect(unwrapScript('{"a": 1}')).toBe('{"a": 1}');
});
