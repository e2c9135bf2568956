import { createHash } from "node:crypto";
import { serveSimulator } from "../../dev/simulator/serve.ts";
import { textPdf } from "../../packages/file-text/test/corpus.ts";
import { cleanUp, newFolder, start, workerdsOf } from "../e2e/serve-support.ts";
import { fetchAnew } from "../workerd/tools.ts";
import { pathologicalFiles } from "./pathological.ts";

/**
 * `npm run pathological -- TEXT`: lets one tenant send each pathological file to `serve`, or those whose names have the text, while another
 * one creates responses. Prints the answers that are neither a text nor a 400, the longest waits of the other tenant, and the process's
 * end, if it has ended. Exits with 1 if there is such an answer, or an end.
 */

const KEYS = { attacker: "the-key-of-an-attacker", other: "the-key-of-another" };
const PAUSE_MS = 20;

const vllm = await serveSimulator();
const hash = (key: string) => createHash("sha256").update(key).digest("hex");
const served = await start({
  VLLM_BASE_URL: `${vllm.url}/v1`,
  API_KEYS: Object.entries(KEYS)
    .map(([tenant, key]) => `${tenant}:${hash(key)}`)
    .join(","),
  STATE_DIRECTORY: newFolder(),
});

function turn(key: string, input: object[] | string): Promise<Response> {
  return fetchAnew(`${served.url}/v1/responses`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "simulator", store: false, input }),
  });
}

function turnWith(key: string, bytes: Uint8Array, filename: string): Promise<Response> {
  const file_data = Buffer.from(bytes).toString("base64");
  return turn(key, [{ type: "message", role: "user", content: [{ type: "input_file", file_data, filename }] }]);
}

const [gateway] = workerdsOf(served);
const waits: number[] = [];
let isOver = false;
const other = (async () => {
  while (!isOver) {
    const begun = performance.now();
    const answer = await turn(KEYS.other, "Hello!");
    await answer.text();
    if (answer.status !== 200) throw new Error(`The other tenant got ${answer.status}.`);
    waits.push(performance.now() - begun);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
})();

const faults: string[] = [];
const files = pathologicalFiles().filter(({ name }) => name.includes(process.argv[2] ?? ""));
for (const { name, filename, bytes } of files) {
  const begun = performance.now();
  const sent = turnWith(KEYS.attacker, bytes(), filename);
  const answer = await sent.catch((cause: unknown) => void faults.push(`${name}: ${cause}`));
  if (!answer) continue;
  const { error } = (await answer.json()) as { error?: { message: string } };
  const took = Math.round(performance.now() - begun);
  if (took > 2_000) console.log(`${name} (${filename}): ${answer.status} after ${took} ms: ${error?.message ?? ""}`);
  if (answer.status !== 200 && answer.status !== 400) faults.push(`${name}: ${answer.status} ${error?.message}`);
}
const fine = await turnWith(KEYS.other, textPdf(["One fine page"]), "fine.pdf");
if (fine.status !== 200) faults.push(`a fine file: ${fine.status}`);
isOver = true;
await other;
if (workerdsOf(served)[0] !== gateway) faults.push("The gateway's process has ended.");
waits.sort((a, b) => a - b);
const at = (part: number) => Math.round(waits[Math.min(waits.length - 1, Math.floor(waits.length * part))] ?? 0);
console.log(
  `${files.length} files; another tenant's ${waits.length} turns: p50 ${at(0.5)}, p99 ${at(0.99)}, longest ${at(1)} ms`,
);
for (const fault of faults) console.log(`  ${fault}`);
served.child.kill("SIGTERM");
await served.exited;
await vllm.close();
cleanUp();
process.exit(faults.length > 0 ? 1 : 0);
