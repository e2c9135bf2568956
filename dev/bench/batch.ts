import { setTimeout as sleep } from "node:timers/promises";
import { cpuSeconds } from "./processes.ts";
import { HELLO, type Target } from "./targets.ts";

/** Batches of creates that are stored. */

/** Makes a batch of `lines` creates and waits for its end. Gives the CPU of a line in microseconds, with the files. */
export async function batchLineMicros({ port, pid }: Target, model: string, lines: number): Promise<number> {
  const line = (id: number) => ({
    custom_id: `${id}`,
    method: "POST",
    url: "/v1/responses",
    body: { model, input: HELLO },
  });
  const text = Array.from({ length: lines }, (_, id) => JSON.stringify(line(id))).join("\n");
  const call = async (path: string, init?: RequestInit) =>
    (await fetch(`http://127.0.0.1:${port}/v1/${path}`, init)).json() as Promise<{ id: string; status: string }>;
  const before = cpuSeconds(pid);
  const body = new FormData();
  body.set("purpose", "batch");
  body.set("file", new File([text], "lines.jsonl"));
  const { id: input_file_id } = await call("files", { method: "POST", body });
  const asked = { input_file_id, endpoint: "/v1/responses", completion_window: "24h" };
  const headers = { "content-type": "application/json" };
  const { id } = await call("batches", { method: "POST", headers, body: JSON.stringify(asked) });
  for (const deadline = performance.now() + 60_000; performance.now() < deadline; await sleep(100)) {
    const { status } = await call(`batches/${id}`);
    if (status === "completed") return ((cpuSeconds(pid) - before) * 1e6) / lines;
  }
  throw new Error("the batch has not ended");
}
