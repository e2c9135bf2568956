import { afterAll, beforeAll, expect, it } from "vitest";
import { isObject } from "../../dev/simulator/json.ts";
import { type SimulatorServer, serveSimulator } from "../../dev/simulator/serve.ts";
import { eventually } from "../e2e/support.ts";
import { newSeed, randomFrom } from "../random.ts";
import { type McpTestServer, startMcpServer } from "../tools/mcp-server.ts";
import { startWorkerd, type WorkerdProcess } from "../workerd/process.ts";
import { create as createAt, hasEnded, type Reader, resume as resumeAt, streamOf } from "./reader.ts";

/** A server that really dies in the middle of tool calls: no call is made twice, and no event is lost or repeated. */

let vllm: SimulatorServer;
let worker: WorkerdProcess;
let tools: McpTestServer;
beforeAll(async () => {
  vllm = await serveSimulator();
  tools = await startMcpServer({ mode: "stateless", tools: [SLOW] });
  const url = new URL(tools.url);
  const variables = { VLLM_BASE_URL: `${vllm.url}/v1`, ALLOW_ANONYMOUS: "true", MCP_SERVERS: url.origin };
  worker = await startWorkerd(variables, { through: "serve" });
});
afterAll(async () => {
  await worker.close();
  await tools.close();
  await vllm.close();
});

/** The test server's tool `slow`. A simulated model gives it the only allowed duration. */
const SLOW = {
  name: "slow",
  description: "Takes its time.",
  inputSchema: { type: "object", properties: { ms: { enum: [600] } }, required: ["ms"] },
};

/** A client with a tool server of its own. */
interface Caller extends Reader {
  /** The path of its tool server, which identifies its calls. */
  name: string;
  model: string;
}

function create(reader: Caller): Promise<void> {
  const server_url = `${tools.url}/${reader.name}`;
  const mcp = { type: "mcp", server_label: "sample", server_url, require_approval: "never" };
  const input = "With a preamble, call sample__slow.";
  return createAt(worker.url, reader, { model: reader.model, input, tools: [mcp] });
}

const resume = (reader: Reader) => resumeAt(worker.url, reader);

/** Requests to call a tool of this reader's server. */
const callsOf = ({ name }: Caller) =>
  tools.requests.filter(({ path, message }) => path.endsWith(`/${name}`) && message?.method === "tools/call");

const ROUNDS = 5;
const STREAMS = 10;

// Two calls, one after another; gpt-oss reasons before each.
const MODELS = ["simulator-gpt-oss?tps=120&rounds=2", "simulator?tps=40&ttft=150&rounds=2"];

it(`kill -9 in the middle of the calls of ${ROUNDS * STREAMS} background streams makes none of them twice`, async () => {
  const random = randomFrom(newSeed("tool calls"));
  const readers: Caller[] = [];
  let reading: Promise<void>[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const begun = Array.from({ length: STREAMS }, (_, index) => ({
      name: `reader-${round}-${index}`,
      model: MODELS[index % MODELS.length] ?? "",
      id: "",
      text: "",
    }));
    reading.push(...begun.map(create));
    readers.push(...begun);
    await eventually(() => begun.every(({ id }) => id !== ""));
    // Every second kill comes during a call, the others at any moment.
    if (round % 2 === 0) await eventually(() => begun.some((reader) => callsOf(reader).length > 0));
    else await new Promise((resolve) => setTimeout(resolve, random() * 1_800));
    await worker.kill();
    await Promise.all(reading);
    await worker.restart();
    reading = readers.filter((reader) => !hasEnded(reader)).map(resume);
  }
  await Promise.all(reading);

  const replays = readers.map((reader) => ({ ...reader, text: "" }));
  await Promise.all(replays.map(resume));
  const seen = { completed: 0, failed: 0, unknown: 0, answered: 0 };
  for (const [index, reader] of readers.entries()) {
    expect(hasEnded(reader)).toBe(true);
    expect(reader.text).toBe(replays[index]?.text);
    expect(reader.text).not.toMatch(/^data: \[(?!DONE)/m);
    const { response } = streamOf(reader);
    if (!response) throw new Error("No response.");
    const calls = response.output.filter((item) => item.type === "mcp_call");
    const made = callsOf(reader);
    expect(made.length).toBeLessThanOrEqual(calls.length);
    for (const call of calls) {
      if (call.status === "completed") seen.answered += 1;
      else if (JSON.stringify(call.error ?? "").includes("is not known")) seen.unknown += 1;
    }
    expect(made.length).toBeGreaterThanOrEqual(calls.filter(({ status }) => status === "completed").length);
    expect(response.output.filter(({ type }) => type === "mcp_list_tools")).toHaveLength(1);
    if (response.status === "failed") {
      // Only a chat model's call cannot be resumed.
      expect(reader.model).not.toContain("gpt-oss");
      expect(response.error?.message).toMatch(/cannot resume in the middle/);
      seen.failed += 1;
      continue;
    }
    expect(response.status).toBe("completed");
    // A call in whose middle a chat model was cut off was not made. The model started it again.
    const whole = calls.filter((call) => call.status !== "incomplete" || reader.model.includes("gpt-oss"));
    expect(whole).toHaveLength(2);
    expect(response.output.at(-1)).toMatchObject({ type: "message", status: "completed" });
    for (const { status } of whole) expect(["completed", "failed"]).toContain(status);
    seen.completed += 1;
  }
  console.log(JSON.stringify(seen));
  // Some must have been cut off in a call: otherwise the test proves nothing.
  expect(seen.unknown).toBeGreaterThan(0);
  expect(seen.answered).toBeGreaterThan(0);
  // The model got this message.
  expect(
    vllm.simulator.requests.some(({ body }) => isObject(body) && JSON.stringify(body).includes("is not known")),
  ).toBe(true);
});
