import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { MODELS, type ProgramGateway, startPrograms, writing } from "../e2e/program-support.ts";
import { installedPython, PYTHON_PACKAGES } from "./installed.ts";

/** Programs, whose functions the real Python clients answer. */

let python: string;
let gateway: ProgramGateway;
beforeAll(async () => {
  python = await installedPython("python", ...PYTHON_PACKAGES);
  gateway = await startPrograms({});
});
afterAll(() => gateway.close());

it.each(MODELS)("of %s are used by the Agents SDK and by openai-python unmodified", async (model) => {
  const script = fileURLToPath(new URL("python/programs.py", import.meta.url));
  const code = `const all = await Promise.all(["A", "BB"].map((sku) => tools.get_stock({ sku })));
    return all.map(({ left }) => left + 1).join();`;
  const args = [script, `${gateway.url}/v1`, model, writing(model, code)];
  const { stdout } = await promisify(execFile)(python, args);
  const { agents, types, callers, result } = JSON.parse(stdout) as Record<string, unknown>;
  expect({ callers, result }).toEqual({ callers: [true, true], result: "2,3" });
  expect(agents).toContain("2,3");
  expect(types).toEqual(expect.arrayContaining(["program", "function_call", "function_call_output", "program_output"]));
});
