import { execFile, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { installedPython } from "../clients/installed.ts";
import { programOf, SAMPLED } from "../samples.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";

/** Clients that generators make from `GET /openapi.json`, in four languages: they compile, and their calls work. */

const run = promisify(execFile);
const folder = fileURLToPath(new URL("../../node_modules/.cache/generators/", import.meta.url));
const DOCUMENT = `${folder}openapi.json`;
const ANSWER = "You said: Hello!";

let vllm: SimulatorServer;
let worker: WorkerdProcess;
beforeAll(async () => {
  vllm = await serveSimulator();
  worker = await startWorkerd({ VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true" });
  mkdirSync(folder, { recursive: true });
  writeFileSync(DOCUMENT, await (await fetch(`${worker.url}/openapi.json`)).text());
});
afterAll(async () => {
  await worker.close();
  await vllm.close();
});

/** A folder for a generator's output, with `files` in it. */
function place(name: string, files: Record<string, string> = {}): string {
  const at = `${folder}${name}/`;
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(at + path), { recursive: true });
    writeFileSync(at + path, text);
  }
  return at;
}

/** The output of a command. Fails with the whole output. */
async function said(cwd: string, command: string, ...parameters: string[]): Promise<string> {
  return (await output(cwd, command, ...parameters)).stdout.trim();
}

async function output(cwd: string, command: string, ...parameters: string[]) {
  try {
    return await run(command, parameters, { cwd, maxBuffer: 64 * 1024 * 1024 });
  } catch (error) {
    const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
    throw new Error(`${command} ${parameters.join(" ")}\n${stdout}${stderr}`.slice(0, 4000));
  }
}

function lacks(program: string, parameter = "version"): boolean {
  const isLacking = spawnSync(program, [parameter]).status !== 0;
  if (isLacking) console.warn(`Left out: there is no ${program}.`);
  return isLacking;
}

const NPM = [
  "openapi-typescript@7.13.0",
  "openapi-fetch@0.17.0",
  "orval@8.38.0",
  "typescript@5.9.3",
  "@types/node@24.19.2",
];

it("TypeScript: openapi-typescript with openapi-fetch, and orval", async () => {
  const at = place("typescript", {
    "package.json": '{"private":true,"type":"module"}',
    "tsconfig.json": JSON.stringify({
      compilerOptions: {
        target: "es2022",
        module: "esnext",
        moduleResolution: "bundler",
        lib: ["es2023", "dom", "dom.iterable"],
        types: ["node"],
        strict: true,
        skipLibCheck: true,
        // Node reads no TypeScript below node_modules.
        rewriteRelativeImportExtensions: true,
        outDir: "out",
      },
      include: ["*.ts"],
    }),
    "orval.config.mjs":
      'export default { api: { input: "../openapi.json", output: { target: "./orval.ts", client: "fetch", baseUrl: "http://127.0.0.1" } } };',
    "fetch.ts": `import createClient from "openapi-fetch";
import type { paths } from "./api.d.ts";
const client = createClient<paths>({ baseUrl: String(process.argv[2]) });
const { data, error } = await client.POST("/v1/responses", { body: { model: "simulator", input: "Hello!" } });
if (error) throw new Error(error.error.message);
const id: string = data.id;
for (const item of data.output)
  if (item.type === "message") for (const part of item.content) if (part.type === "output_text") console.log(part.text);
const items = await client.GET("/v1/responses/{id}/input_items", { params: { path: { id } } });
console.log(items.data?.data.length);
`,
    "orval-use.ts": `import { createResponse } from "./orval.ts";
const passOn = globalThis.fetch;
globalThis.fetch = (input, init) => passOn(String(input).replace("http://127.0.0.1", String(process.argv[2])), init);
const answer = await createResponse({ model: "simulator", input: "Hello!" });
if (answer.status === 200) console.log(answer.data.status, answer.data.output.length);
`,
  });
  if (!existsSync(`${at}node_modules/.bin/orval`))
    await said(at, "npm", "install", "--no-save", "--prefix", at, ...NPM);
  const bin = `${at}node_modules/.bin/`;
  await said(at, `${bin}openapi-typescript`, DOCUMENT, "-o", "api.d.ts");
  await said(at, `${bin}orval`, "--config", "orval.config.mjs");
  await said(at, `${bin}tsc`, "-p", ".");
  expect(await said(at, process.execPath, "out/fetch.js", worker.url)).toBe(`${ANSWER}\n1`);
  expect(await said(at, process.execPath, "out/orval-use.js", worker.url)).toBe("completed 1");
});

it("Python: openapi-python-client", async () => {
  const python = await installedPython("openapi-python-client", "openapi-python-client==0.29.1", "mypy==1.18.2");
  const at = place("python", {
    "use.py": `import sys
from client import AuthenticatedClient
from client.api.responses import create_response
from client.models import CreateResponse, OutputMessage, OutputText, ResponseObject
answer = create_response.sync(client=AuthenticatedClient(base_url=sys.argv[1], token="any"), body=CreateResponse(model="simulator", input_="Hello!"))
assert isinstance(answer, ResponseObject)
message = answer.output[0]
assert isinstance(message, OutputMessage)
text = message.content[0]
assert isinstance(text, OutputText)
print(text.text)
`,
  });
  const generate = ["-m", "openapi_python_client", "generate", "--path", DOCUMENT, "--meta", "none"];
  const { stdout, stderr } = await output(at, python, ...generate, "--output-path", "client", "--overwrite");
  // The generator does not support JSON lines, which two operations for operators have.
  expect((stdout + stderr).match(/^(Unable|WARNING).*/gm)).toEqual([
    expect.stringContaining("/v1/admin/tenants/{tenant}/export"),
    expect.stringContaining("/v1/admin/tenants/{tenant}/import"),
  ]);
  await said(at, python, "-m", "mypy", "--no-error-summary", "--follow-imports", "silent", "use.py");
  expect(await said(at, python, "use.py", worker.url)).toBe(ANSWER);
});

it.skipIf(lacks("go"))("Go: the console's code samples", async () => {
  for (const [name, request] of Object.entries(SAMPLED)) {
    const at = place(`console-go/${name.replaceAll(" ", "-")}`, {
      "go.mod": "module example.com/sample\n\ngo 1.24\n",
      "main.go": programOf(request, "Go", `${worker.url}/v1`),
      "one.png": "no picture",
    });
    await said(at, "go", "vet", ".");
    // One answer that is not streamed is printed as JSON.
    const printed = await said(at, "go", "run", ".");
    const heard = printed.startsWith("{") ? JSON.parse(printed).output[0].content[0].text : printed;
    expect(heard, name).toMatch(request.prints);
  }
});

it.skipIf(lacks("go"))("Go: oapi-codegen", async () => {
  const at = place("go", {
    "go.mod": "module example.com/client\n\ngo 1.24\n",
    "main.go": `package main

import (
	"context"
	"fmt"
	"os"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	client, err := NewClientWithResponses(os.Args[1])
	check(err)
	model := "simulator"
	input := RequestFields_Input{}
	check(input.FromRequestFieldsInput0("Hello!"))
	body := CreateResponse{Model: &model, Input: &input}
	answer, err := client.CreateResponseWithResponse(context.Background(), nil, body)
	check(err)
	message, err := answer.JSON200.Output[0].AsOutputMessage()
	check(err)
	text, err := message.Content[0].AsOutputText()
	check(err)
	fmt.Println(text.Text)
}
`,
  });
  const tool = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2";
  await said(at, "go", "run", tool, "-generate", "types,client", "-package", "main", "-o", "api.gen.go", DOCUMENT);
  await said(at, "go", "mod", "tidy");
  await said(at, "go", "vet", ".");
  expect(await said(at, "go", "run", ".", worker.url)).toBe(ANSWER);
});

const JAR =
  "https://repo1.maven.org/maven2/org/openapitools/openapi-generator-cli/7.25.0/openapi-generator-cli-7.25.0.jar";

it.skipIf(lacks("mvn", "--version"))("Java: openapi-generator", async () => {
  const jar = `${folder}${JAR.split("/").at(-1)}`;
  if (!existsSync(jar)) writeFileSync(jar, Buffer.from(await (await fetch(JAR)).arrayBuffer()));
  rmSync(`${folder}java`, { recursive: true, force: true });
  const at = place("java", {
    "src/main/java/call/Call.java": `package call;

import org.openapitools.client.ApiClient;
import org.openapitools.client.api.ResponsesApi;
import org.openapitools.client.model.*;

public class Call {
  public static void main(String[] args) throws Exception {
    ApiClient client = new ApiClient();
    client.setBasePath(args[0]);
    RequestFields body = new RequestFields().model("simulator").input(new RequestFieldsInput("Hello!"));
    ResponseObject response = new ResponsesApi(client).createResponse(body, null, null);
    OutputMessage message = (OutputMessage) response.getOutput().get(0).getActualInstance();
    System.out.println(((OutputText) message.getContent().get(0).getActualInstance()).getText());
  }
}
`,
  });
  await said(at, "java", "-jar", jar, "generate", "-i", DOCUMENT, "-g", "java", "--library", "okhttp-gson", "-o", ".");
  const classpath = ["dependency:build-classpath", "-Dmdep.outputFile=classpath"];
  await said(at, "mvn", "-q", "-Dmaven.test.skip", "-Dmaven.javadoc.skip", "package", ...classpath);
  const classes = `target/classes:${readFileSync(`${at}classpath`, "utf8")}`;
  expect(await said(at, "java", "-cp", classes, "call.Call", worker.url)).toBe(ANSWER);
});
