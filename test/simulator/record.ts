/**
 * Records a real vLLM's answers to the requests in recorded-cases.ts: `npx node test/simulator/record.ts
 * http://127.0.0.1:8100 http://127.0.0.1:8200`, the servers of `tiny-qwen3` and `tiny-gpt-oss`.
 */
import { writeFile } from "node:fs/promises";
import { isObject } from "../../dev/simulator/json.ts";
import { CASES, type RecordedCase } from "./recorded-cases.ts";
import { type Recording, recordingOf } from "./recording.ts";

const [qwen = "http://127.0.0.1:8100", gptOss = "http://127.0.0.1:8200"] = process.argv.slice(2);
const version: unknown = await (await fetch(`${qwen}/version`)).json();
const recordings: Recording[] = [];
for (const recorded of CASES) recordings.push(await record(recorded));
const lines = recordings.map((recording) => `    ${JSON.stringify(recording)}`).join(",\n");
const text = `{\n  "vllm": ${JSON.stringify(isObject(version) ? version.version : null)},\n  "recordings": [\n${lines}\n  ]\n}\n`;
await writeFile(new URL("recordings/vllm.json", import.meta.url), text);

/** The model is slowed down: on a busy machine tokens that come fast share a chunk. */
async function record({ name, path, body }: RecordedCase): Promise<Recording> {
  const server = body.model === "tiny-gpt-oss" ? gptOss : qwen;
  const response = await fetch(server + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body.stream === true ? { ...body, vllm_xargs: { delay_ms: 60 } } : body),
  });
  return recordingOf(name, response.status, await response.text());
}
