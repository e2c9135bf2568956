import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { connectSamples } from "../../packages/console/src/connect-samples.ts";
import { FreshFolder, programOf, SAMPLED } from "../samples.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { root } from "../workerd/tools.ts";
import { installedPackages, installedPython, PYTHON_PACKAGES } from "./installed.ts";

/** The console's samples for Python, and for packages of npm that are no dependencies here. `test/e2e` runs the others. */

const LANGCHAIN = ["@langchain/openai@1.6.0", "@langchain/core@1.4.0"];

let python: string;
let packages: string;
let vllm: SimulatorServer;
let worker: WorkerdProcess;
beforeAll(async () => {
  python = await installedPython("python", ...PYTHON_PACKAGES);
  packages = await installedPackages("langchain", ...LANGCHAIN);
  vllm = await serveSimulator();
  worker = await startWorkerd({ VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true" });
});
afterAll(async () => {
  await worker.close();
  await vllm.close();
});

it.each(["openai-python", "agents-python", "langchain-python", "langchain-node"])(
  "a sample of the page that connects clients runs as it is written: %s",
  async (id) => {
    using folder = new FreshFolder(packages);
    const samples = connectSamples({ baseUrl: `${worker.url}/v1`, model: "simulator" });
    const [file] = samples.find((each) => each.id === id)?.files ?? [];
    const { name, language, text } = file ?? expect.fail();
    folder.write(name, text);
    expect(await folder.run([language === "python" ? python : process.execPath, name])).toBe("You said: Hello!\n");
  },
);

it.each(Object.keys(SAMPLED))("a request runs as Python, until there is a final text: %s", async (name) => {
  using folder = new FreshFolder();
  const request = SAMPLED[name] ?? expect.fail();
  folder.write("ask.py", programOf(request, "Python", `${worker.url}/v1`));
  expect((await folder.run([python, "ask.py"])).trimEnd()).toMatch(request.prints);
});

it("README's Python runs as it is written", async () => {
  using folder = new FreshFolder();
  const [, sample = ""] = /```python\n([\s\S]*?)```/.exec(readFileSync(join(root, "README.md"), "utf8")) ?? [];
  folder.write("hello.py", sample.replace("http://localhost:8787", worker.url));
  expect(await folder.run([python, "hello.py"])).toBe("You said: Tell me a joke.\nYou said: Explain it.");
});
