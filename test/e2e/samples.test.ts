import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connectSamples } from "../../packages/console/src/connect-samples.ts";
import { FreshFolder, programOf, SAMPLED } from "../samples.ts";
import { root } from "../workerd/tools.ts";
import { type Gateway, joinGateway } from "./support.ts";

/** The console's samples in a folder as `npm init` makes one. `test/clients` runs those of other packages and languages. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());

const HERE = ["curl", "openai-node", "agents-node", "ai-sdk"];

describe.concurrent("a sample of", () => {
  it.each(HERE)("the page that connects clients runs as it is written: %s", async (id) => {
    using folder = new FreshFolder();
    const samples = connectSamples({ baseUrl: `${gateway.url}/v1`, model: "simulator" });
    const { files, run } = samples.find((each) => each.id === id) ?? expect.fail();
    for (const { name, text } of files) folder.write(name, text);
    expect(await folder.run(["sh", "-c", run])).toMatch(
      id === "curl" ? /"text":"You said: Hello!"/ : /^You said: Hello!$/m,
    );
  });

  it.each(Object.keys(SAMPLED))("a request runs as TypeScript, until there is a final text: %s", async (name) => {
    using folder = new FreshFolder();
    const request = SAMPLED[name] ?? expect.fail();
    folder.write("ask.mts", programOf(request, "TypeScript", `${gateway.url}/v1`));
    expect((await folder.run([process.execPath, "ask.mts"])).trimEnd()).toMatch(request.prints);
  });

  it.each(["a file", "a call", "a call over a WebSocket"])("a request runs as a command of curl: %s", async (name) => {
    using folder = new FreshFolder();
    const request = SAMPLED[name] ?? expect.fail();
    folder.write("ask.sh", programOf(request, "curl", `${gateway.url}/v1`));
    expect(await folder.run(["sh", "ask.sh"])).toMatch(/"(?:text|arguments)":"(?:You said|\{)/);
  });
});

it("the sample of docs/websocket.md runs as it is written", async () => {
  using folder = new FreshFolder();
  const [, sample = ""] = /```ts\n([\s\S]*?)```/.exec(readFileSync(join(root, "docs/websocket.md"), "utf8")) ?? [];
  folder.write("hello.mts", sample.replace("http://localhost:8787", gateway.url));
  expect(await folder.run([process.execPath, "hello.mts"])).toBe("You said: Hello!");
});

it("the TypeScript of all samples has the types of its packages", async () => {
  using folder = new FreshFolder();
  const target = { baseUrl: `${gateway.url}/v1`, model: "simulator" };
  for (const [name, request] of Object.entries(SAMPLED)) {
    folder.write(`${name.replaceAll(" ", "-")}.mts`, programOf(request, "TypeScript", target.baseUrl));
  }
  for (const { id, files } of connectSamples(target).filter(({ id }) => HERE.includes(id))) {
    for (const { name, language, text } of files) if (language === "typescript") folder.write(`${id}-${name}`, text);
  }
  const compilerOptions = { target: "es2024", module: "nodenext", strict: true, noEmit: true, types: ["node"] };
  folder.write("tsconfig.json", JSON.stringify({ compilerOptions: { ...compilerOptions, skipLibCheck: true } }));
  await folder.run([process.execPath, join(root, "node_modules/typescript/bin/tsc"), "-p", "."]);
});
