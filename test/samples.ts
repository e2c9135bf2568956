import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { LocalFile, samplesOf } from "../packages/console/src/code-samples.ts";
import type { Transport } from "../packages/console/src/sending.ts";

/** The console's code samples as users run them: each is written into a fresh folder and run there, unchanged. */

const TEXT = `It's "quoted", $HOME, \`ticks\`, \\ and é`;
const file = { type: "input_image", image_url: new LocalFile("one.png", "image/png"), detail: "auto" };
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", name: "get_weather", parameters, strict: false }];

/** A request and a part of what its program prints. */
interface SampledRequest {
  transport: Transport;
  body: Record<string, unknown>;
  prints: string | RegExp;
}

const model = "simulator";
const input = "Use get_weather.";
const called =
  /^The tool get_weather returned: get_weather is not written yet\. It was called with \{["']city["']: ?["'].+["']\}\.$/;

/** Requests of each kind. Each has a program in every language. `seed` is a field that OpenAI's packages do not know. */
export const SAMPLED: Readonly<Record<string, SampledRequest>> = {
  "a text": { transport: "whole", body: { model, input: TEXT, seed: 3 }, prints: `You said: ${TEXT}` },
  "a file": {
    transport: "stream",
    body: { model, input: [{ role: "user", content: [{ type: "input_text", text: TEXT }, file] }] },
    prints: `You said: ${TEXT}\n[image]`,
  },
  "a background run": { transport: "background", body: { model, input: "Hello!" }, prints: "You said: Hello!" },
  "a message over a WebSocket": { transport: "socket", body: { model, input: "Hello!" }, prints: "You said: Hello!" },
  "a call": { transport: "whole", body: { model, input, tools, seed: 3 }, prints: called },
  "a call in a stream": { transport: "stream", body: { model, input, tools, seed: 3 }, prints: called },
  "a call of a background run": { transport: "background", body: { model, input, tools }, prints: called },
  "a call over a WebSocket": { transport: "socket", body: { model, input, tools, seed: 3 }, prints: called },
  "a forced call": {
    transport: "stream",
    body: { model, input: "Hello!", tools, tool_choice: "required" },
    prints: called,
  },
  "a call that is not stored": { transport: "whole", body: { model, input, tools, store: false }, prints: called },
  "a streamed call that is not stored": {
    transport: "stream",
    body: { model, input, tools, store: false },
    prints: called,
  },
  "a call over a WebSocket that is not stored": {
    transport: "socket",
    body: { model, input, tools, store: false },
    prints: called,
  },
};

/** The program of a request in a language. */
export function programOf({ body, transport }: SampledRequest, language: string, baseUrl: string): string {
  const found = samplesOf(body, transport, baseUrl).find(({ name }) => name === language);
  if (!found) throw new Error(`There is no sample in ${language}.`);
  return found.code;
}

const repository = fileURLToPath(new URL("../", import.meta.url));

/** A folder as `npm init -y` makes one, with the packages of this repository, or of the folder `packages`. */
export class FreshFolder implements Disposable {
  readonly path: string;

  constructor(packages = repository) {
    this.path = mkdtempSync(join(tmpdir(), "sample-"));
    this.write("package.json", '{ "name": "sample", "version": "1.0.0", "type": "commonjs" }');
    this.write("one.png", "no picture");
    symlinkSync(join(packages, "node_modules"), join(this.path, "node_modules"));
  }

  write(name: string, text: string): void {
    mkdirSync(dirname(join(this.path, name)), { recursive: true });
    writeFileSync(join(this.path, name), text);
  }

  /** Runs a command in the folder, by default with a key. Gives its output. Rejects if it fails. */
  async run(
    [program = "", ...args]: readonly string[],
    env: NodeJS.ProcessEnv = { ...process.env, OPENAI_API_KEY: "any" },
  ): Promise<string> {
    return (await promisify(execFile)(program, args, { cwd: this.path, env })).stdout;
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true });
  }
}
