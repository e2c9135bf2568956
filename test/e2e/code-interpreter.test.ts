import { createHash } from "node:crypto";
import type {
  Response,
  ResponseCodeInterpreterToolCall,
  ResponseCreateParamsNonStreaming,
  ResponseStreamEvent,
  Tool,
} from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startToolServer, type ToolServer } from "../../dev/tool-server/server.ts";
import { COMPLETE, eventually as inTime, KEY, toolProcesses } from "../tool-server/support.ts";
import { freePort } from "../workerd/tools.ts";
import { DATE, GPT_OSS, lastMessages, lastTurns, saying, tolerating } from "./harmony-support.ts";
import { ADMIN_KEY, makeKey, newTenant, usageOf } from "./key-support.ts";
import { eventually, type Gateway, joinGateway, lastPrompt, startGateway } from "./support.ts";
import { ask, chatMessages, itemsOfType, MODELS, onlyItem, textOf } from "./tool-support.ts";
import { ended } from "./turns.ts";

/** The tools python and container, run by the development tool server. */

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

const OUTPUTS = "code_interpreter_call.outputs";

const python: Tool = { type: "code_interpreter", container: { type: "auto" } };
/** A field of vLLM's, unknown to OpenAI's types. */
const container = { type: "container" } as unknown as Tool;
const CONTAINER_IS_UNKNOWN = /value of tag "type" must be in oneOf "container"$/;

let server: ToolServer;
let gateway: Gateway;
beforeAll(async () => {
  server = await startToolServer({ apiKey: KEY, timeoutMs: 1_500, maxOutputBytes: 50_000 });
  gateway = await startGateway({
    HARMONY_START_DATE: DATE,
    API_KEYS: `a:${sha256("key-a")},b:${sha256("key-b")}`,
    ADMIN_KEY,
    MODEL_PRICES: JSON.stringify({ code_interpreter: { input: 0, output: 0, unit: 0.03 } }),
    TOOL_SERVERS: JSON.stringify({ python: server.pythonUrl, container: server.containerUrl }),
    TOOL_SERVER_API_KEY: KEY,
    TOOL_SERVER_MCP_LABELS: "code_interpreter,web_search_preview,container",
  });
});
afterAll(async () => {
  await gateway.close();
  await server.close();
});

function create(body: ResponseCreateParamsNonStreaming, key = "key-a"): Promise<Response> {
  return gateway.client({ apiKey: key }).responses.create({ model: "simulator", tools: [python], ...body });
}

function stream(body: ResponseCreateParamsNonStreaming) {
  const given = { model: "simulator", tools: [python], ...body };
  return ask(gateway, "stream", given, gateway.client({ apiKey: "key-a" }));
}

/** The events of the call with code. Consecutive deltas count once. */
function callEvents(events: readonly ResponseStreamEvent[], type: string): string[] {
  const added = events.find((event) => event.type === "response.output_item.added" && event.item.type === type);
  const index = added && "output_index" in added ? added.output_index : undefined;
  return events
    .filter((event) => "output_index" in event && event.output_index === index)
    .map((event) => event.type as string)
    .filter((each, at, all) => each !== all[at - 1]);
}

function codeCalls(response: Pick<Response, "output">): ResponseCodeInterpreterToolCall[] {
  return itemsOfType(response, "code_interpreter_call");
}

/** The output of each call's code. */
function logsOf(response: Pick<Response, "output">): string[] {
  return codeCalls(response).map(({ outputs }) =>
    (outputs ?? []).map((part) => (part.type === "logs" ? part.logs : part.type)).join(),
  );
}

/** The last tool answer in the model's prompt. */
async function seenBy(model: string): Promise<string> {
  if (model.startsWith(GPT_OSS)) {
    const message = (await lastTurns(gateway)).findLast((text) => /^(python|container)/.test(text)) ?? "";
    return message.slice(message.indexOf("<|message|>") + "<|message|>".length).replace(/<\|end\|>$/, "");
  }
  return String(chatMessages(lastPrompt(gateway)).findLast(({ role }) => role === "tool")?.content);
}

const withPython = COMPLETE ? describe : describe.skip;

withPython("the usage of programs", () => {
  it("is a session for each turn that has used it, and costs the price in MODEL_PRICES", async () => {
    const key = await makeKey(gateway, newTenant(), {});
    for (const input of ["Use python: `print(1)`", "Hello!"]) await create({ input }, key.value);
    await eventually(async () => (await usageOf(gateway, key))?.num_model_requests === 2);
    expect(await usageOf(gateway, key, "code_interpreter_sessions")).toMatchObject({ num_sessions: 1, cost_usd: 0.03 });
  });
});

withPython.each(MODELS)("python for %s", (model) => {
  it("is run, and its output is shown on request", async () => {
    const request = { model, input: "Use python: `print(2**10)`" };
    const shown = await create({ ...request, include: [OUTPUTS] });
    expect(shown.status).toBe("completed");
    expect(codeCalls(shown)).toEqual([
      {
        id: expect.stringMatching(/^ci_/),
        type: "code_interpreter_call",
        status: "completed",
        code: "print(2**10)",
        container_id: expect.stringMatching(/^cntr_/),
        outputs: [{ type: "logs", logs: "1024\n" }],
      },
    ]);
    expect(shown.output_text).toBe("The tool python returned: 1024\n");
    expect(shown.tools).toEqual([python]);
    const hidden = await create(request);
    expect(codeCalls(hidden)).toMatchObject([{ status: "completed", code: "print(2**10)", outputs: null }]);
    expect(hidden.output_text).toBe("The tool python returned: 1024\n");
  });

  it("streams its code, and the beginning of its run", async () => {
    const { events, response } = await stream({ model, input: "Use python: `print(2**10)`", include: [OUTPUTS] });
    expect(callEvents(events, "code_interpreter_call")).toEqual([
      "response.output_item.added",
      "response.code_interpreter_call.in_progress",
      "response.code_interpreter_call_code.delta",
      "response.code_interpreter_call_code.done",
      "response.code_interpreter_call.interpreting",
      "response.code_interpreter_call.completed",
      "response.output_item.done",
    ]);
    const deltas = events.filter((event) => event.type === "response.code_interpreter_call_code.delta");
    expect(deltas.map(({ delta }) => delta).join("")).toBe("print(2**10)");
    const done = events.find((event) => event.type === "response.code_interpreter_call_code.done");
    expect(done).toMatchObject({ code: "print(2**10)" });
    expect(logsOf(response)).toEqual(["1024\n"]);
    // A function's argument can be taken from its JSON only when it is complete; gpt-oss's message is the script
    // itself.
    expect(deltas.length > 1).toBe(model === GPT_OSS);
  });

  it("is run in the background", async () => {
    const { response } = await ask(
      gateway,
      "background",
      { model, tools: [python], input: "Use python: `print('far away')`", include: [OUTPUTS] },
      gateway.client({ apiKey: "key-a" }),
    );
    expect(response.status).toBe("completed");
    expect(logsOf(response)).toEqual(["far away\n"]);
  });

  it("keeps its variables over the rounds of a response, and in later turns of the conversation", async () => {
    const rounds = await create({
      model: `${model}?rounds=2`,
      input: "Use python: `x = 1` and then `print(x + 1)`",
      include: [OUTPUTS],
    });
    expect(codeCalls(rounds).map(({ code }) => code)).toEqual(["x = 1", "print(x + 1)"]);
    expect(logsOf(rounds)).toEqual([expect.stringContaining("No output available"), "2\n"]);
    expect(new Set(codeCalls(rounds).map(({ container_id }) => container_id)).size).toBe(1);
    expect(rounds.usage).toMatchObject({ input_tokens_per_turn: { length: 3 } });

    const next = await create({
      model,
      previous_response_id: rounds.id,
      input: "Use python: `print(x + 2)`",
      include: [OUTPUTS],
    });
    expect(logsOf(next)).toEqual(["3\n"]);
    const [{ container_id } = { container_id: "" }] = codeCalls(rounds);
    expect(codeCalls(next)).toMatchObject([{ container_id }]);
    // A client that keeps its items itself continues by them.
    const kept = [...rounds.output, { role: "user", content: "Use python: `print(x + 3)`" }];
    const own = await create({ model, input: kept as never, include: [OUTPUTS], store: false });
    expect(logsOf(own)).toEqual(["4\n"]);
    const named = await create({
      ...{ model, input: "Use python: `print(x + 4)`", include: [OUTPUTS] },
      tools: [{ type: "code_interpreter", container: container_id }],
    });
    expect([logsOf(named), codeCalls(named)[0]?.container_id]).toEqual([["5\n"], container_id]);
    const other = await create({ model, input: "Use python: `print(x)`", include: [OUTPUTS] });
    expect(logsOf(other)).toEqual([expect.stringContaining("NameError")]);
    expect(codeCalls(other)[0]?.container_id).not.toBe(container_id);
  });

  it("shows an error of the code as its output", async () => {
    const response = await create({ model, input: "Use python: `print(1)\n1/0`", include: [OUTPUTS] });
    expect(codeCalls(response)).toMatchObject([{ status: "completed" }]);
    expect(logsOf(response)[0]).toMatch(/^1\nTraceback[\s\S]*ZeroDivisionError: division by zero\n$/);
    expect(await seenBy(model)).toBe(logsOf(response)[0]);
  });

  it("is stopped in an endless loop, and the model is told", async () => {
    const before = toolProcesses();
    const response = await create({ model, input: "Use python: `while True: pass`", include: [OUTPUTS] });
    expect(response.status).toBe("completed");
    expect(codeCalls(response)).toMatchObject([{ status: "failed" }]);
    expect(await seenBy(model)).toMatch(/^\[ERROR\] The interpreter took more than 1\.5 s, and was ended/);
    expect(response.output_text).toContain("took more than 1.5 s");
    expect(await inTime(() => toolProcesses() <= before)).toBe(true);
  });

  it("is stopped when it prints without end, and the model sees the beginning and the end of the output", async () => {
    // The model repeats the output, which must not be a repetition.
    const numbers = "b' '.join(b'%d' % (n * 4096 + i) for i in range(4096))";
    const code = `import os\nn = 0\nwhile True:\n n += 1\n os.write(1, ${numbers})`;
    const response = await create({ model, input: `Use python: \`${code}\``, include: [OUTPUTS] });
    expect(response.status).toBe("completed");
    const seen = await seenBy(model);
    expect(seen.length).toBeLessThan(60_000);
    expect(seen).toMatch(
      /^[\d ]+\n\[… \d{6,} bytes left out …\]\n[\d ]+\n\[ERROR\] The interpreter took more than 1\.5 s/,
    );
    expect(logsOf(response)).toEqual([seen]);
  });

  it("can be chosen, and is called once", async () => {
    const tools: Tool[] = [python, { type: "web_search" }];
    const choice = { type: "code_interpreter" } as never;
    const input = "Use python or browser.open or browser_open: `1 + 1`";
    const response = await create({ model, tools, input, tool_choice: choice, include: [OUTPUTS] });
    expect(response.status).toBe("completed");
    expect(response.output.map(({ type }) => type).filter((type) => type.endsWith("_call"))).toEqual([
      "code_interpreter_call",
    ]);
    expect(logsOf(response)).toEqual(["2\n"]);
    expect(response.tool_choice).toEqual({ type: "code_interpreter" });
    const [forced, free] = gateway.vllm.simulator.requests
      .filter(({ path }) => path.endsWith("/completions"))
      .slice(-2)
      .map(({ body }) => JSON.stringify(body));
    if (model === GPT_OSS) {
      expect(forced).toContain("structural_tag");
      expect(free).not.toContain("structural_tag");
    } else {
      expect(JSON.parse(forced ?? "")).toMatchObject({
        tools: [{ function: { name: "python" } }],
        tool_choice: "required",
      });
      expect(JSON.parse(free ?? "")).toMatchObject({ tool_choice: "auto" });
    }
  });

  it("is not run if no tool may be called", async () => {
    const response = await create({ model, input: "Use python: `print(1)`", tool_choice: "none" });
    expect(codeCalls(response)).toEqual([]);
  });

  it("is offered by vLLM's label for it", async () => {
    const tools: Tool[] = [{ type: "mcp", server_label: "code_interpreter", server_url: "http://127.0.0.1:1/nobody" }];
    const response = await create({ model, tools, input: "Use python: `print(3)`", include: [OUTPUTS] });
    expect(response.output.map(({ type }) => type).filter((type) => type.startsWith("mcp"))).toEqual([]);
    expect(logsOf(response)).toEqual(["3\n"]);
  });
});

withPython("the next turn's prompt", () => {
  it("has the call and its result: for a chat model as a function", async () => {
    const first = await create({ input: "Use python: `print(2**10)`" });
    await create({ previous_response_id: first.id, input: "Thanks." });
    expect(lastPrompt(gateway).messages).toEqual([
      { role: "user", content: "Use python: `print(2**10)`" },
      {
        role: "assistant",
        tool_calls: [
          {
            id: expect.any(String),
            type: "function",
            function: { name: "python", arguments: '{"code":"print(2**10)"}' },
          },
        ],
      },
      { role: "tool", tool_call_id: expect.any(String), content: "1024\n" },
      { role: "assistant", content: "The tool python returned: 1024\n" },
      { role: "user", content: "Thanks." },
    ]);
  });

  it("has the shown parts of them if a client keeps everything itself", async () => {
    const question = { role: "user", content: "Use python: `print(2**10)`" } as const;
    const first = await create({ input: [question], include: [OUTPUTS], store: false });
    const input = [question, ...first.output, { role: "user", content: "Thanks." }];
    await create({ input: input as never, store: false });
    expect(lastPrompt(gateway).messages).toMatchObject([
      { role: "user" },
      { role: "assistant", tool_calls: [{ function: { name: "python", arguments: '{"code":"print(2**10)"}' } }] },
      { role: "tool", content: "1024\n" },
      { role: "assistant" },
      { role: "user" },
    ]);
  });

  it("has them in gpt-oss's reasoning, as long as this stays", async () => {
    const first = await create({ model: GPT_OSS, input: "Use python: `print(2**10)`" });
    const during = await lastTurns(gateway);
    expect(during).toEqual([
      "user<|message|>Use python: `print(2**10)`<|end|>",
      expect.stringMatching(/^assistant<\|channel\|>analysis<\|message\|>The user said/),
      "assistant<|channel|>analysis to=python code<|message|>print(2**10)<|call|>",
      "python<|channel|>analysis to=assistant<|message|>1024\n<|end|>",
    ]);
    await create({ model: GPT_OSS, previous_response_id: first.id, input: "Thanks." });
    expect(await lastTurns(gateway)).toEqual([
      "user<|message|>Use python: `print(2**10)`<|end|>",
      "assistant<|channel|>final<|message|>The tool python returned: 1024\n<|end|>",
      "user<|message|>Thanks.<|end|>",
    ]);
  });
});

withPython("the script of gpt-oss", () => {
  it.each([
    ["as JSON", '{"code":"print(6 * 7)"}'],
    ["between fences", "```python\nprint(6 * 7)\n```"],
    ["as it is", "print(6 * 7)"],
  ])("may come %s", async (_, message) => {
    const model = saying(`<|channel|>analysis to=python code<|message|>${message}<|call|>`);
    const response = await create({ model, input: "Compute.", include: [OUTPUTS] });
    expect(codeCalls(response)).toMatchObject([{ code: "print(6 * 7)", status: "completed" }]);
    expect(logsOf(response)).toEqual(["42\n"]);
    const streamed = await stream({ model, input: "Compute.", include: [OUTPUTS] });
    expect(codeCalls(streamed.response)).toMatchObject([{ code: "print(6 * 7)" }]);
  });
});

/** The client of the first tenant. */
const client = () => gateway.client({ apiKey: "key-a" });

/** Uploads a file, and gives its id. */
async function uploaded(text: string, name: string): Promise<string> {
  const file = new File([text], name);
  return (await client().files.create({ file, purpose: "user_data" })).id;
}

/** `code_interpreter` with these files in its container. */
const withFiles = (...file_ids: string[]): Tool => ({
  type: "code_interpreter",
  container: { type: "auto", file_ids },
});

/** The text of the model's last prompt. */
async function promptOf(model: string): Promise<string> {
  return model.startsWith(GPT_OSS) ? (await lastMessages(gateway)).join("\n") : JSON.stringify(lastPrompt(gateway));
}

/** The annotations of a response's texts. */
function citationsOf({ output }: Pick<Response, "output">) {
  return itemsOfType({ output }, "message").flatMap(({ content }) =>
    content.flatMap((part) => (part.type === "output_text" ? part.annotations : [])),
  );
}

withPython.each(MODELS)("files of a container for %s", (model) => {
  it("are the request's files, whose names the model gets", async () => {
    const [owls, twin, long] = await Promise.all([
      uploaded("owl,hoot", "owls.csv"),
      uploaded("second", "owls.csv"),
      uploaded("x".repeat(1_500_000), "long.txt"),
    ]);
    const tools = [withFiles(owls, twin, long)];
    const input =
      "Use python: `import os; print(open('/mnt/data/owls.csv').read(), len(open('long.txt').read()), sorted(os.listdir('/mnt/data')))`";
    const response = await create({ model, input, tools });
    const names = `['${twin}-owls.csv', 'long.txt', 'owls.csv']`;
    expect(response.output_text).toBe(`The tool python returned: owl,hoot 1500000 ${names}\n`);
    expect(citationsOf(response)).toEqual([]);
    expect(response.tools).toEqual(tools);
    expect(await promptOf(model)).toContain("owls.csv");
    await create({ model, input: "Hello", tools: [python] });
    expect(await promptOf(model)).not.toContain("owls.csv");
  });

  it("are stored when a program writes them, and cited where the text links them", async () => {
    const code = "open('/mnt/data/a.csv', 'w').write('1,2'); print('\u{1F989} [it](sandbox:/mnt/data/a.csv).')";
    const input = `Use python: \`${code}\``;
    const { events, response } = await stream({ model, input, include: [OUTPUTS] });
    const text = "The tool python returned: \u{1F989} [it](sandbox:/mnt/data/a.csv).\n";
    expect(response.output_text).toBe(text);
    const start = [...text.slice(0, text.indexOf("sandbox:"))].length;
    const [citation, ...others] = citationsOf(response);
    expect(others).toEqual([]);
    expect(citation).toEqual({
      type: "container_file_citation",
      container_id: onlyItem(response, "code_interpreter_call").container_id,
      file_id: expect.stringMatching(/^file-/),
      filename: "a.csv",
      start_index: start,
      end_index: start + "sandbox:/mnt/data/a.csv".length,
    });
    const added = events.filter(({ type }) => type === "response.output_text.annotation.added");
    expect(added).toMatchObject([{ annotation: citation, annotation_index: 0, content_index: 0 }]);
    expect((await client().responses.retrieve(response.id)).output).toEqual(response.output);
    if (citation?.type !== "container_file_citation") throw new Error("There is no citation.");
    const { container_id, file_id } = citation;
    const bytes = await client().containers.files.content.retrieve(file_id, { container_id });
    expect(await bytes.text()).toBe("1,2");
    expect(await client().containers.files.retrieve(file_id, { container_id })).toMatchObject({
      object: "container.file",
      path: "/mnt/data/a.csv",
      source: "assistant",
      bytes: 3,
    });
    expect(await client().files.retrieve(file_id)).toMatchObject({ purpose: "assistants_output", filename: "a.csv" });
    await expect(
      client().containers.files.retrieve(file_id, { container_id: `cntr_${"0".repeat(32)}` }),
    ).rejects.toMatchObject({
      status: 404,
    });
    const other = gateway.client({ apiKey: "key-b" });
    await expect(other.containers.files.retrieve(file_id, { container_id })).rejects.toMatchObject({ status: 404 });
    await expect(other.containers.files.content.retrieve(file_id, { container_id })).rejects.toMatchObject({
      status: 404,
    });
  });

  it("are cited once at the end of a text that does not name them", async () => {
    const code = "import os; os.mkdir('out'); open('out/b.txt', 'w').write('b' * 1500000); print('Done')";
    const response = await create({ model, input: `Use python: \`${code}\``, background: false });
    const end = response.output_text.length;
    expect(citationsOf(response)).toMatchObject([{ filename: "b.txt", start_index: end, end_index: end }]);
    const [citation] = citationsOf(response);
    const id = citation && "file_id" in citation ? citation.file_id : "";
    expect(await (await client().files.content(id)).text()).toBe("b".repeat(1_500_000));
    const next = await create({ model, input: "Hello", previous_response_id: response.id });
    expect(citationsOf(next)).toEqual([]);
  });

  it("are read and kept in the background", async () => {
    const file = await uploaded("in", "in.txt");
    const input =
      "Use python: `open('/mnt/data/out.txt', 'w').write(open('/mnt/data/in.txt').read() * 2); print('See out.txt')`";
    const begun = await create({ model, input, tools: [withFiles(file)], background: true });
    const response = await ended({ ...gateway, openai: client() }, begun.id);
    const [citation] = citationsOf(response);
    expect(citation).toMatchObject({ type: "container_file_citation", filename: "out.txt" });
    const id = citation && "file_id" in citation ? citation.file_id : "";
    expect(await (await client().files.content(id)).text()).toBe("inin");
  });
});

withPython("files of a container", () => {
  it("are a 404 if they do not exist, or are another tenant's", async () => {
    const file = await uploaded("mine", "mine.txt");
    const param = "tools[0].container.file_ids[1]";
    const tools = [withFiles(file, "file-unknown")];
    await expect(create({ input: "Hello", tools })).rejects.toMatchObject({
      status: 404,
      param,
      code: "file_not_found",
    });
    const own = await gateway
      .client({ apiKey: "key-b" })
      .files.create({ file: new File(["b"], "b.txt"), purpose: "user_data" });
    await expect(create({ input: "Hello", tools: [withFiles(file, own.id)] })).rejects.toMatchObject({
      status: 404,
      param,
    });
    await expect(create({ input: "Hello", tools: [withFiles(...Array(51).fill(file))] })).rejects.toMatchObject({
      status: 400,
      param: "tools[0].container.file_ids",
    });
  });

  it("stay within the container's directory if a program makes links out of it", async () => {
    const code = "import os; os.symlink('/etc/passwd', 'p.txt'); os.symlink('/etc', 'etc'); print('Linked')";
    const response = await create({ input: `Use python: \`${code}\`` });
    expect(citationsOf(response)).toEqual([]);
  });
});

describe.each(MODELS)("container for %s", (model) => {
  const name = model === GPT_OSS ? "container.exec" : "container_exec";
  const exec = (input: string, settings = "") =>
    tolerating(gateway, CONTAINER_IS_UNKNOWN, () =>
      stream({ model: model + settings, tools: [container], input: `Use ${name}: ${input}` }),
    );

  it("runs a command, as a call of an MCP server", async () => {
    const { response, events } = await exec("`echo $((6 * 7))`");
    expect(onlyItem(response, "mcp_call")).toEqual({
      id: expect.stringMatching(/^mcp_/),
      type: "mcp_call",
      status: "completed",
      server_label: "container",
      name: "exec",
      arguments: '{"cmd":["sh","-c","echo $((6 * 7))"]}',
      output: "42\n[exit code 0]",
      error: null,
      approval_request_id: null,
    });
    expect(textOf(response)).toBe(`The tool ${name} returned: 42\n[exit code 0]`);
    expect(callEvents(events, "mcp_call")).toEqual([
      "response.output_item.added",
      "response.mcp_call.in_progress",
      "response.mcp_call_arguments.delta",
      "response.mcp_call_arguments.done",
      "response.mcp_call.completed",
      "response.output_item.done",
    ]);
  });

  it("keeps files over the rounds of a response", async () => {
    const { response } = await exec("`echo kept > note` and then `cat note`", "?rounds=2");
    const outputs = itemsOfType(response, "mcp_call").map(({ output }) => output);
    expect(outputs).toEqual(["[exit code 0]", "kept\n[exit code 0]"]);
    const { response: next } = await exec("`cat note`");
    expect(onlyItem(next, "mcp_call").output).toMatch(/No such file[\s\S]*\[exit code 1\]/);
  });

  it("names the fault of a call", async () => {
    const { response } = await exec('`{"cmd":"ls"}`');
    expect(response.status).toBe("completed");
    expect(onlyItem(response, "mcp_call")).toMatchObject({
      status: "failed",
      output: null,
      error: { type: "mcp_tool_execution_error", content: [{ text: expect.stringContaining("cmd") }] },
    });
    expect(textOf(response)).toContain("cmd");
  });

  it("is offered by vLLM's label for it", async () => {
    const tools: Tool[] = [{ type: "mcp", server_label: "container", server_url: "https://tools.example.com/mcp" }];
    const response = await create({ model, tools, input: `Use ${name}: \`echo labelled\`` });
    expect(onlyItem(response, "mcp_call").output).toBe("labelled\n[exit code 0]");
    expect(response.output.map(({ type }) => type)).not.toContain("mcp_list_tools");
  });
});

describe("a deployment without tool servers", () => {
  let bare: Gateway;
  beforeAll(async () => {
    bare = await joinGateway();
  });
  afterAll(() => bare.close());

  it.each([
    ["code_interpreter", "python"],
    ["container", "container"],
  ])("refuses %s by name, and names the variable to set", async (type, builtin) => {
    const answer = await bare.post({
      model: "simulator",
      input: "Hello!",
      tools: [{ type: "function", name: "f", parameters: null }, { type }],
    });
    expect({ status: answer.status, body: await answer.json() }).toEqual({
      status: 400,
      body: {
        error: {
          type: "invalid_request_error",
          code: "unsupported_parameter",
          param: "tools[1].type",
          message: expect.stringMatching(new RegExp(`'${builtin}'.*TOOL_SERVERS`)),
        },
      },
    });
    expect(bare.vllm.simulator.requests.some(({ path }) => path.endsWith("completions"))).toBe(false);
  });
});

describe("a tool server that is down", () => {
  let cut: Gateway;
  beforeAll(async () => {
    const gone = `http://127.0.0.1:${await freePort()}`;
    cut = await startGateway({
      HARMONY_START_DATE: DATE,
      TOOL_SERVERS: JSON.stringify({ python: `${gone}/python`, container: `${gone}/container` }),
      TOOL_SERVER_MCP_LABELS: "container",
    });
  });
  afterAll(() => cut.close());

  it.each(MODELS)("is reported to %s, and the turn goes on", async (model) => {
    const name = model === GPT_OSS ? "container.exec" : "container_exec";
    const tools: Tool[] = [python, { type: "mcp", server_label: "container", server_url: "https://tools.example.com" }];
    const input = `Use python and ${name}: \`print(1)\``;
    const { response } = await ask(cut, "stream", { model, tools, input, include: [OUTPUTS] });
    expect(response.status).toBe("completed");
    expect(codeCalls(response)).toMatchObject([{ status: "failed", code: "print(1)" }]);
    expect(logsOf(response)[0]).toMatch(/^Error: .*could not be reached/);
    expect(onlyItem(response, "mcp_call")).toMatchObject({
      status: "failed",
      output: null,
      error: { type: "mcp_protocol_error", message: expect.stringContaining("could not be reached") },
    });
    expect(textOf(response)).toContain("could not be reached");
  });
});
