import { createRequest } from "@responses-edge/responses-api/create-bodies";
import { HOSTED_TYPES } from "@responses-edge/responses-api/hosted-tools";
import { BadRequestError } from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { expectError, rejection } from "./expectations.ts";
import { type Gateway, joinGateway } from "./support.ts";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await joinGateway();
});
afterAll(() => gateway.close());
beforeEach(() => {
  gateway.vllm.simulator.requests.length = 0;
});

/** The objects that have storage. */
const stored = () => gateway.storage.ids();

/** A refused body: its fault, the field that the answer names, and the code. */
type Row = [
  what: string,
  fields: Record<string, unknown>,
  param: string | null,
  code: string,
  message?: RegExp | string,
];

/** Each row is a 400 that names the field, before vLLM or the store get the request. */
function refuses(rows: Row[]): void {
  let before: string[];
  beforeAll(async () => {
    before = await stored();
  });
  it.each(rows)("%s", async (_what, fields, param, code, message) => {
    const response = await gateway.post({ model: "simulator", input: "Hello!", ...fields });
    await expectError(response, {
      status: 400,
      type: "invalid_request_error",
      param,
      code,
      ...(message !== undefined && { message }),
    });
    expect(gateway.vllm.simulator.requests).toEqual([]);
    expect(await stored()).toEqual(before);
  });
}

const user = (...content: unknown[]) => ({ role: "user", content });
const functionTool = (fields: object = {}) => ({ type: "function", name: "f", parameters: {}, ...fields });
const long = (length: number) => "x".repeat(length);

describe("a field of the wrong type", () => {
  const wrong = (field: string, value: unknown, expected: string, got: string): Row => [
    `${field}: ${JSON.stringify(value)}`,
    { [field]: value },
    field,
    "invalid_type",
    `Invalid type for '${field}': expected ${expected}, but got ${got} instead.`,
  ];
  refuses([
    wrong("model", 5, "a string", "an integer"),
    wrong("input", 5, "a string or an array", "an integer"),
    wrong("input", { role: "user" }, "a string or an array", "an object"),
    wrong("input", true, "a string or an array", "a boolean"),
    wrong("instructions", ["Be brief."], "a string", "an array"),
    wrong("previous_response_id", 5, "a string", "an integer"),
    wrong("tools", {}, "an array", "an object"),
    wrong("parallel_tool_calls", "yes", "a boolean", "a string"),
    wrong("max_output_tokens", "100", "a number", "a string"),
    wrong("max_output_tokens", 1.5, "an integer", "a decimal"),
    wrong("max_tool_calls", true, "a number", "a boolean"),
    wrong("temperature", "hot", "a number", "a string"),
    wrong("top_p", [], "a number", "an array"),
    wrong("top_logprobs", 2.5, "an integer", "a decimal"),
    wrong("text", "json", "an object", "a string"),
    wrong("reasoning", "high", "an object", "a string"),
    wrong("include", "reasoning.encrypted_content", "an array", "a string"),
    wrong("store", "true", "a boolean", "a string"),
    wrong("stream", 1, "a boolean", "an integer"),
    wrong("stream_options", true, "an object", "a boolean"),
    wrong("metadata", [], "an object", "an array"),
    wrong("safety_identifier", {}, "a string", "an object"),
    wrong("prompt_cache_key", 1, "a string", "an integer"),
    wrong("user", 1, "a string", "an integer"),
    wrong("top_k", "5", "a number", "a string"),
    wrong("min_p", "5", "a number", "a string"),
    wrong("repetition_penalty", false, "a number", "a boolean"),
    wrong("presence_penalty", "0", "a number", "a string"),
    wrong("frequency_penalty", {}, "a number", "an object"),
    wrong("seed", "lucky", "a number", "a string"),
    wrong("stop", 5, "a string or an array", "an integer"),
    wrong("stop_token_ids", 5, "an array", "an integer"),
    wrong("ignore_eos", 1, "a boolean", "an integer"),
    wrong("include_stop_str_in_output", 1, "a boolean", "an integer"),
    wrong("skip_special_tokens", 1, "a boolean", "an integer"),
    wrong("logit_bias", [], "an object", "an array"),
    wrong("priority", "high", "a number", "a string"),
    wrong("cache_salt", 5, "a string", "an integer"),
    wrong("structured_outputs", "json", "an object", "a string"),
    wrong("chat_template_kwargs", [], "an object", "an array"),
    wrong("mm_processor_kwargs", [], "an object", "an array"),
    wrong("vllm_xargs", [], "an object", "an array"),
    wrong("kv_transfer_params", [], "an object", "an array"),
    wrong("include_reasoning", "no", "a boolean", "a string"),
    ["text.verbosity: 5", { text: { verbosity: 5 } }, "text.verbosity", "invalid_value"],
    ["stop: [5]", { stop: [5] }, "stop[0]", "invalid_type"],
    ["metadata: {a: 5}", { metadata: { a: 5 } }, "metadata.a", "invalid_type"],
    ["logit_bias: {5: 'x'}", { logit_bias: { 5: "x" } }, "logit_bias.5", "invalid_type"],
    [
      "stream_options.include_obfuscation",
      { stream_options: { include_obfuscation: 0 } },
      "stream_options.include_obfuscation",
      "invalid_type",
    ],
  ]);
});

describe("a value out of range", () => {
  refuses([
    ["temperature 2.1", { temperature: 2.1 }, "temperature", "above_max_value", /<= 2/],
    ["temperature -0.1", { temperature: -0.1 }, "temperature", "below_min_value", />= 0/],
    ["top_p 1.1", { top_p: 1.1 }, "top_p", "above_max_value", /<= 1/],
    ["top_p -1", { top_p: -1 }, "top_p", "below_min_value", />= 0/],
    ["top_logprobs 21", { top_logprobs: 21 }, "top_logprobs", "above_max_value", /<= 20/],
    ["top_logprobs -1", { top_logprobs: -1 }, "top_logprobs", "below_min_value", />= 0/],
    ["max_output_tokens 0", { max_output_tokens: 0 }, "max_output_tokens", "below_min_value", />= 1/],
    ["max_output_tokens 2^60", { max_output_tokens: 2 ** 60 }, "max_output_tokens", "above_max_value"],
    ["max_tool_calls 0", { max_tool_calls: 0 }, "max_tool_calls", "below_min_value", />= 1/],
    ["min_p 2", { min_p: 2 }, "min_p", "above_max_value"],
    ["top_k -2", { top_k: -2 }, "top_k", "below_min_value", />= -1/],
    ["repetition_penalty 0", { repetition_penalty: 0 }, "repetition_penalty", "below_min_value", /> 0/],
    ["presence_penalty 2.5", { presence_penalty: 2.5 }, "presence_penalty", "above_max_value", /<= 2/],
    ["frequency_penalty -2.5", { frequency_penalty: -2.5 }, "frequency_penalty", "below_min_value", />= -2/],
    ["model ''", { model: "" }, "model", "string_below_min_length"],
    ["model of 513 characters", { model: long(513) }, "model", "string_above_max_length", /maximum length 512/],
    ["17 stop strings", { stop: Array(17).fill("x") }, "stop", "array_above_max_length", /at most 16/],
    ["an empty stop string", { stop: [""] }, "stop[0]", "string_below_min_length"],
    ["a negative stop token", { stop_token_ids: [-1] }, "stop_token_ids[0]", "below_min_value"],
    ["service_tier", { service_tier: "gold" }, "service_tier", "invalid_value", /'gold'.*'auto', 'default'/],
    ["truncation", { truncation: "some" }, "truncation", "invalid_value", /'some'.*'auto', 'disabled'/],
    ["include", { include: ["everything"] }, "include[0]", "invalid_value", /'everything'/],
    ["reasoning.effort", { reasoning: { effort: "huge" } }, "reasoning.effort", "invalid_value", /'huge'.*'none'/],
    ["reasoning.summary", { reasoning: { summary: "long" } }, "reasoning.summary", "invalid_value"],
    ["reasoning.context", { reasoning: { context: "some" } }, "reasoning.context", "invalid_value"],
    ["text.verbosity", { text: { verbosity: "chatty" } }, "text.verbosity", "invalid_value", /'low', 'medium', 'high'/],
    ["text.format.type", { text: { format: { type: "yaml" } } }, "text.format.type", "invalid_value", /'yaml'/],
    [
      "a json_schema without name",
      { text: { format: { type: "json_schema", schema: {} } } },
      "text.format.name",
      "missing_required_parameter",
    ],
    [
      "a json_schema without schema",
      { text: { format: { type: "json_schema", name: "x" } } },
      "text.format.schema",
      "missing_required_parameter",
    ],
    [
      "a json_schema's name with a space",
      { text: { format: { type: "json_schema", name: "a b", schema: {} } } },
      "text.format.name",
      "invalid_value",
      /'a b'/,
    ],
    [
      "structured_outputs beside text.format",
      { structured_outputs: { regex: "a" }, text: { format: { type: "json_object" } } },
      "structured_outputs",
      "invalid_value",
    ],
    ["safety_identifier of 129", { safety_identifier: long(129) }, "safety_identifier", "string_above_max_length"],
    ["user of 1025", { user: long(1025) }, "user", "string_above_max_length"],
    ["prompt_cache_key of 1025", { prompt_cache_key: long(1025) }, "prompt_cache_key", "string_above_max_length"],
    ["prompt_cache_retention", { prompt_cache_retention: "1y" }, "prompt_cache_retention", "invalid_value"],
  ]);
});

describe("metadata", () => {
  const keys = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, "v"]));
  refuses([
    ["of 17 keys", { metadata: keys(17) }, "metadata", "object_above_max_properties", /at most 16/],
    ["with a key of 65 characters", { metadata: { [long(65)]: "v" } }, `metadata.${long(64)}…`, "invalid_value"],
    ["with a value of 513 characters", { metadata: { k: long(513) } }, "metadata.k", "string_above_max_length"],
    ["with null for a value", { metadata: { k: null } }, "metadata.k", "invalid_type"],
  ]);

  it("with a key of a megabyte is refused without repeating it", async () => {
    const response = await gateway.post({ model: "simulator", input: "Hi", metadata: { [long(1_000_000)]: "v" } });
    expect(response.status).toBe(400);
    expect((await response.text()).length).toBeLessThan(1_000);
  });

  it("may have 16 keys of 64 characters with values of 512, and keys with names of JavaScript's own properties", async () => {
    const metadata = Object.fromEntries([
      ...Array.from({ length: 14 }, (_, index) => [`${long(62)}${10 + index}`, long(512)] as const),
      ["constructor", "a"],
      ["toString", "b"],
    ]);
    const response = await gateway.openai.responses.create({ model: "simulator", input: "Hello!", metadata });
    expect(response.metadata).toEqual(metadata);
  });
});

describe("an input", () => {
  const input = (...items: unknown[]) => ({ input: items });
  const many = Array.from({ length: 300 }, () => user({ type: "input_text", text: "Hello!" }));
  refuses([
    ["that is absent", { input: undefined }, "input", "missing_required_parameter", /'input'/],
    ["that is null", { input: null }, "input", "missing_required_parameter", /'input'/],
    ["without items", input(), "input", "empty_array"],
    ["of numbers", input(5), "input[0]", "invalid_type", /expected an object, but got an integer/],
    ["of strings", input("Hello!"), "input[0]", "invalid_type", /expected an object, but got a string/],
    ["of nulls", input(null), "input[0]", "invalid_type", /expected an object, but got null/],
    ["with a number after many items", input(...many, 5, {}), "input[300]", "invalid_type", /but got an integer/],
    ["with an unknown item after many", input(...many, { type: "telepathy" }, 5), "input[300].type", "invalid_value"],
    ["with an item without type", input({ text: "x" }), "input[0].type", "missing_required_parameter"],
    ["of an unknown type", input({ type: "telepathy" }), "input[0].type", "invalid_value", /'telepathy'/],
    ["of an unknown role", input({ role: "wizard", content: "x" }), "input[0].role", "invalid_value", /'wizard'/],
    [
      "with a message without role",
      input({ type: "message", content: "x" }),
      "input[0].role",
      "missing_required_parameter",
    ],
    ["with a message without content", input({ role: "user" }), "input[0].content", "missing_required_parameter"],
    [
      "with a message whose content is a number",
      input({ role: "user", content: 5 }),
      "input[0].content",
      "invalid_type",
      /expected a string or an array, but got an integer/,
    ],
    [
      "with a message whose content is an array of strings",
      input({ role: "user", content: ["x"] }),
      "input[0].content[0]",
      "invalid_type",
    ],
    [
      "with an unknown part",
      input(user({ type: "input_smell" })),
      "input[0].content[0].type",
      "invalid_value",
      /'input_smell'/,
    ],
    ["with a part without type", input(user({ text: "x" })), "input[0].content[0].type", "missing_required_parameter"],
    [
      "with a text part without text",
      input(user({ type: "input_text" })),
      "input[0].content[0].text",
      "missing_required_parameter",
    ],
    [
      "with output_text in a user's message",
      input(user({ type: "output_text", text: "x", annotations: [] })),
      "input[0].content[0].type",
      "invalid_value",
      /'output_text'/,
    ],
    [
      "with an image in a system message",
      input({ role: "system", content: [{ type: "input_image", image_url: "https://a.example.com/b.png" }] }),
      "input[0].content[0].type",
      "invalid_value",
    ],
    [
      "with an image that is no URL",
      input(
        user({ type: "input_text", text: "a" }),
        user({ type: "input_text", text: "b" }),
        user({ type: "input_image", image_url: "cat.png" }),
      ),
      "input[2].content[0].image_url",
      "invalid_value",
    ],
    [
      "with an image of type text",
      input(user({ type: "input_text", text: "a" }, { type: "input_image", image_url: "data:text/plain;base64,AA==" })),
      "input[0].content[1].image_url",
      "invalid_value",
    ],
    [
      "with an image whose detail is unknown",
      input(user({ type: "input_image", image_url: "https://a.example.com/b.png", detail: "huge" })),
      "input[0].content[0].detail",
      "invalid_value",
    ],
    [
      "with audio in another format",
      input(user({ type: "input_audio", input_audio: { data: "AA==", format: "ogg" } })),
      "input[0].content[0].input_audio.format",
      "invalid_value",
      /'ogg'.*'mp3', 'wav'/,
    ],
    [
      "with a file without data",
      input(user({ type: "input_file", filename: "a.txt" })),
      "input[0].content[0].file_data",
      "missing_required_parameter",
    ],
    [
      "with a file of broken base64",
      input(user({ type: "input_file", file_data: "data:text/plain;base64,*" })),
      "input[0].content[0].file_data",
      "invalid_value",
      /base64/,
    ],
    [
      "with a file by its data and its URL",
      input(user({ type: "input_file", file_data: "SGVsbG8=", file_url: "https://acme.dev/a.txt" })),
      "input[0].content[0].file_url",
      "invalid_value",
      /Mutually exclusive/,
    ],
    [
      "with an image by its URL and its id",
      input(user({ type: "input_image", image_url: "https://acme.dev/a.png", file_id: "file-1" })),
      "input[0].content[0].file_id",
      "invalid_value",
      /Mutually exclusive/,
    ],
    [
      "with a call without call_id",
      input({ type: "function_call", name: "f", arguments: "{}" }),
      "input[0].call_id",
      "missing_required_parameter",
    ],
    [
      "with a call whose arguments are an object",
      input({ type: "function_call", name: "f", call_id: "c", arguments: {} }),
      "input[0].arguments",
      "invalid_type",
    ],
    [
      "with an output that is a number",
      input({ type: "function_call_output", call_id: "c", output: 5 }),
      "input[0].output",
      "invalid_type",
    ],
    [
      "with an unknown part in an output",
      input({ type: "function_call_output", call_id: "c", output: [{ type: "input_smell" }] }),
      "input[0].output[0].type",
      "invalid_value",
    ],
    [
      "with encrypted reasoning that is no text",
      input({ type: "reasoning", summary: [], encrypted_content: 5 }),
      "input[0].encrypted_content",
      "invalid_type",
    ],
    [
      "with an item id of 65 characters",
      input({ role: "user", content: "x", id: long(65) }),
      "input[0].id",
      "string_above_max_length",
    ],
    [
      "with a call_id of 65 characters",
      input({ type: "function_call", name: "f", call_id: long(65), arguments: "{}" }),
      "input[0].call_id",
      "string_above_max_length",
      /maximum length 64/,
    ],
    [
      "with an empty call_id",
      input({ type: "function_call_output", call_id: "", output: "" }),
      "input[0].call_id",
      "string_below_min_length",
    ],
    [
      "with a reference of 65 characters",
      input({ type: "item_reference", id: long(65) }),
      "input[0].id",
      "string_above_max_length",
    ],
  ]);
});

describe("calls and outputs", () => {
  const call = { type: "function_call", call_id: "call_1", name: "f", arguments: "{}" };
  const output = { type: "function_call_output", call_id: "call_1", output: "ok" };
  const orphanOutput = "No tool call found for function call output with call_id call_1.";
  const orphanCall = "No tool output found for function call call_1.";
  refuses([
    ["an output without its call", { input: [output] }, "input", "invalid_value", orphanOutput],
    ["a call without its output", { input: [call] }, "input", "invalid_value", orphanCall],
    ["an output before its call", { input: [output, call] }, "input", "invalid_value", orphanOutput],
    [
      "an output of a custom tool without its call",
      { input: [{ type: "custom_tool_call_output", call_id: "c", output: "" }] },
      "input",
      "invalid_value",
      "No tool call found for custom tool call output with call_id c.",
    ],
    [
      "an output by a name that nothing called",
      { input: [{ type: "function_call_output", name: "f", output: "" }] },
      "input",
      "invalid_value",
      "No tool call found for function call output of 'f'.",
    ],
    [
      "a call of a shell without its output",
      { input: [{ type: "shell_call", call_id: "s", action: { commands: ["ls"] } }] },
      "input",
      "invalid_value",
      "No tool output found for shell call s.",
    ],
    [
      "a call that somebody else's output answers",
      { input: [call, { ...output, call_id: "call_2" }] },
      "input",
      "invalid_value",
      /call_2/,
    ],
  ]);
});

describe("tools", () => {
  const hosted = [
    { type: "computer" },
    { type: "computer_use_preview", display_width: 1, display_height: 1, environment: "linux" },
  ];
  const namespace = (name: string, ...tools: object[]) => ({ type: "namespace", name, description: "", tools });
  const custom = (format: object, name = "c") => ({ type: "custom", name, format });
  const many = (count: number) => Array.from({ length: count }, (_, index) => functionTool({ name: `f${index}` }));
  refuses([
    [
      "for programs, without them",
      { tools: [functionTool({ allowed_callers: ["programmatic"] })] },
      "tools[0].allowed_callers",
      "invalid_value",
    ],
    [
      "without a caller",
      { tools: [functionTool({ allowed_callers: [] })] },
      "tools[0].allowed_callers",
      "array_below_min_length",
    ],
    ...hosted.map(
      (tool): Row => [
        `of type ${tool.type}`,
        { tools: [functionTool(), tool] },
        "tools[1].type",
        "unsupported_parameter",
        `The tool type '${tool.type}' is not supported by this server. Supported values are: 'function', 'custom', 'namespace', 'tool_search', 'local_shell', 'shell', 'apply_patch', 'programmatic_tool_calling', ${HOSTED_TYPES.map((name) => `'${name}'`).join(", ")}.`,
      ],
    ),
    [
      "for images, without a model that draws",
      { tools: [{ type: "image_generation" }] },
      "tools[0].type",
      "unsupported_parameter",
      /IMAGE_MODEL/,
    ],
    ["that are no objects", { tools: ["f"] }, "tools[0]", "invalid_type"],
    ["without type", { tools: [{ name: "f" }] }, "tools[0].type", "missing_required_parameter"],
    ["without name", { tools: [{ type: "function" }] }, "tools[0].name", "missing_required_parameter"],
    [
      "nested as in chat completions",
      { tools: [{ type: "function", function: { name: "f" } }] },
      "tools[0].name",
      "missing_required_parameter",
    ],
    ["with a space in the name", { tools: [functionTool({ name: "a b" })] }, "tools[0].name", "invalid_value"],
    ["with an empty name", { tools: [functionTool({ name: "" })] }, "tools[0].name", "invalid_value"],
    [
      "with a name of 129 characters",
      { tools: [functionTool({ name: long(129) })] },
      "tools[0].name",
      "string_above_max_length",
    ],
    ["with a list as parameters", { tools: [functionTool({ parameters: [] })] }, "tools[0].parameters", "invalid_type"],
    ["with strict as a word", { tools: [functionTool({ strict: "yes" })] }, "tools[0].strict", "invalid_type"],
    [
      "of two namespaces whose names meet",
      { tools: [namespace("a", functionTool({ name: "b__c" })), namespace("a__b", functionTool({ name: "c" }))] },
      "tools[1].tools[0].name",
      "invalid_value",
      "The tools 'a.b__c' and 'a__b.c' would both be 'a__b__c' to the model.",
    ],
    [
      "of a namespace in a namespace",
      { tools: [namespace("a", namespace("b"))] },
      "tools[0].tools[0].type",
      "invalid_value",
    ],
    [
      "of a namespace that are too many",
      { tools: [namespace("a", ...many(1_000)), namespace("b", ...many(25))] },
      "tools",
      "array_above_max_length",
    ],
    [
      "with a grammar of 1 MB",
      { tools: [custom({ type: "grammar", syntax: "lark", definition: long(1_000_000) })] },
      "tools[0].format.definition",
      "string_above_max_length",
    ],
    [
      "with a grammar in another language",
      { tools: [custom({ type: "grammar", syntax: "peg", definition: "a" })] },
      "tools[0].format.syntax",
      "invalid_value",
    ],
    [
      "that are custom and named like a hosted one",
      { tools: [{ type: "web_search" }, custom({ type: "text" }, "browser_open")] },
      "tools[1].name",
      "invalid_value",
      "The custom tool 'browser_open' has the name of a tool that this server runs.",
    ],
    [
      "for a shell that nobody here has",
      { tools: [{ type: "shell", environment: { type: "container_auto" } }] },
      "tools[0].environment.type",
      "unsupported_parameter",
    ],
    [
      "with credentials in an item",
      {
        input: [
          { type: "additional_tools", tools: [{ type: "mcp", server_label: "a", server_url: "https://a.example" }] },
        ],
      },
      "input[0].tools[0].type",
      "unsupported_parameter",
    ],
    [
      "of one name",
      { tools: [functionTool(), functionTool({ name: "g" }), functionTool()] },
      "tools[2].name",
      "invalid_value",
      /'f'/,
    ],
  ]);
});

describe("tool_choice", () => {
  const tools = [functionTool()];
  const missing = "Tool choice 'g' not found in 'tools' parameter.";
  const required = "Tool choice 'required' must be specified with 'tools' parameter.";
  refuses([
    ["of an unknown word", { tools, tool_choice: "maybe" }, "tool_choice", "invalid_value", /'maybe'/],
    ["of a number", { tools, tool_choice: 5 }, "tool_choice", "invalid_value"],
    [
      "of a function that is not there",
      { tools, tool_choice: { type: "function", name: "g" } },
      "tool_choice",
      "invalid_value",
      missing,
    ],
    ["required without tools", { tool_choice: "required" }, "tool_choice", "invalid_value", required],
    ["required with tools: []", { tools: [], tool_choice: "required" }, "tool_choice", "invalid_value", required],
    [
      "of a hosted tool",
      { tools, tool_choice: { type: "computer" } },
      "tool_choice.type",
      "unsupported_parameter",
      /'computer'.*not supported/,
    ],
    [
      "of a function as a custom tool",
      { tools, tool_choice: { type: "custom", name: "g" } },
      "tool_choice",
      "invalid_value",
      missing,
    ],
    [
      "of a shell that is not there",
      { tools, tool_choice: { type: "shell" } },
      "tool_choice",
      "invalid_value",
      /'shell'/,
    ],
    ["of an unknown type", { tools, tool_choice: { type: "magic" } }, "tool_choice.type", "invalid_value", /'magic'/],
    [
      "of a function without name",
      { tools, tool_choice: { type: "function" } },
      "tool_choice.name",
      "missing_required_parameter",
    ],
    [
      "allowed_tools with a tool that is not there",
      {
        tools,
        tool_choice: {
          type: "allowed_tools",
          mode: "auto",
          tools: [
            { type: "function", name: "f" },
            { type: "function", name: "g" },
          ],
        },
      },
      "tool_choice",
      "invalid_value",
      missing,
    ],
    [
      "allowed_tools without tools",
      { tools, tool_choice: { type: "allowed_tools", mode: "auto", tools: [] } },
      "tool_choice.tools",
      "array_below_min_length",
    ],
    [
      "allowed_tools without mode",
      { tools, tool_choice: { type: "allowed_tools", tools: [{ type: "function", name: "f" }] } },
      "tool_choice.mode",
      "missing_required_parameter",
    ],
  ]);
});

describe("an unsupported value is named", () => {
  const no = (field: string, value: unknown): Row => [
    `${field}: ${JSON.stringify(value)}`,
    { [field]: value },
    field,
    "unsupported_parameter",
    `'${field}' is not supported by this server.`,
  ];
  const moved = (field: string, value: unknown, to: string): Row => [
    `${field}, of chat completions`,
    { [field]: value },
    field,
    "unsupported_parameter",
    `Unsupported parameter: '${field}'. In the Responses API, this parameter has moved to '${to}'. Try again with the new parameter.`,
  ];
  const chatOnly = (field: string, value: unknown): Row => [
    `${field}, of chat completions alone`,
    { [field]: value },
    field,
    "unsupported_parameter",
    `Unsupported parameter: '${field}'. The Responses API has no such parameter.`,
  ];
  const asks = (param: string, fields: Record<string, unknown>): Row => [
    JSON.stringify(fields),
    fields,
    param,
    "unsupported_parameter",
    /not supported by this server/,
  ];
  refuses([
    no("prompt", { id: "pmpt_1" }),
    [
      "moderation without a guard",
      { moderation: { model: "omni" } },
      "moderation.model",
      "unsupported_parameter",
      /GUARD_MODEL/,
    ],
    asks("image.context_compression", { image: { context_compression: "enabled" } }),
    asks("access_programs.cyber", { access_programs: { cyber: "daybreak_blue" } }),
    asks("personality", { personality: "friendly" }),
    asks("tools[0].container.network_policy", {
      tools: [{ type: "code_interpreter", container: { type: "auto", network_policy: { type: "disabled" } } }],
    }),
    asks("tools[0].container.memory_limit", {
      tools: [{ type: "code_interpreter", container: { type: "auto", memory_limit: "1g" } }],
    }),
    asks("tools[0].defer_loading", {
      tools: [{ type: "mcp", server_label: "docs", server_url: "https://mcp.example.com", defer_loading: true }],
    }),
    ["generate: false in the background", { generate: false, background: true }, "generate", "invalid_value"],
    [
      "prewarm in the background",
      { prompt_cache_options: { prewarm: true }, background: true },
      "prompt_cache_options.prewarm",
      "invalid_value",
    ],
    moved("messages", [{ role: "user", content: "Hello!" }], "input"),
    moved("max_tokens", 100, "max_output_tokens"),
    moved("max_completion_tokens", 100, "max_output_tokens"),
    moved("response_format", { type: "json_object" }, "text.format"),
    moved("reasoning_effort", "low", "reasoning.effort"),
    moved("functions", [], "tools"),
    moved("function_call", "auto", "tool_choice"),
    moved("verbosity", "low", "text.verbosity"),
    moved("logprobs", true, "top_logprobs"),
    moved("web_search_options", {}, "tools"),
    chatOnly("n", 2),
    chatOnly("modalities", ["text", "audio"]),
    chatOnly("audio", { voice: "alloy", format: "wav" }),
    chatOnly("prediction", { type: "content", content: "x" }),
    [
      "reasoning.mode: pro",
      { reasoning: { mode: "pro" } },
      "reasoning.mode",
      "unsupported_parameter",
      "'reasoning.mode' is not supported by this server.",
    ],
  ]);

  it.each([
    { background: false },
    { reasoning: { mode: "standard" } },
    { context_management: [] },
    { access_programs: { cyber: "standard" } },
    { image: { context_compression: "auto" } },
    { multi_agent: { enabled: false } },
    { text: { format: { type: "text" }, verbosity: null } },
    { background_options: { completion_window: "soonest", continuation_id: "x" } },
    { n: null, logprobs: null, verbosity: null, audio: null },
    { tools: [functionTool({ async: false, allowed_callers: ["direct"] })] },
    { generate: true, prompt_cache_options: { prewarm: false } },
    { client_metadata: { a: 1 }, unheard_of: [1, 2, 3] },
  ])("%j requests nothing, and is accepted", async (fields) => {
    const response = await gateway.post({ model: "simulator", input: "Hello!", store: false, ...fields });
    expect(response.status).toBe(200);
  });
});

describe("null", () => {
  it("for the description of a format, as Open Responses writes it, is the same as its absence", async () => {
    const format = { type: "json_schema", name: "n", schema: {}, strict: true };
    // Not by the gateway's client: it compares the echo with what was sent.
    const answer = await fetch(`${gateway.url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json", "openresponses-version": "1" },
      body: JSON.stringify({ model: "simulator", input: "{}", text: { format: { ...format, description: null } } }),
    });
    expect(await answer.json()).toMatchObject({ text: { format } });
  });

  const optional = Object.keys(createRequest.shape).filter((field) => field !== "input");

  it.each(optional)("for %s is the same as its absence", async (field) => {
    const answer = async (body: object) => {
      const response = (await (await gateway.post(body)).json()) as Record<string, unknown>;
      return { ...response, id: "", created_at: 0, completed_at: 0, output: [], usage: null };
    };
    const request = { model: "simulator", input: "Hello!", store: false };
    const { [field as keyof typeof request]: _, ...without } = request;
    expect(await answer({ ...request, [field]: null })).toEqual(await answer(without));
  });

  it("is accepted for all fields at once", async () => {
    const nulls = Object.fromEntries(optional.map((field) => [field, null]));
    const response = await gateway.post({ ...nulls, input: "Hello!" });
    expect(await response.json()).toMatchObject({ status: "completed", model: "simulator", error: null });
  });

  it("is accepted for every optional field of an item", async () => {
    const input = [
      {
        type: "message",
        role: "user",
        id: null,
        status: null,
        content: [{ type: "input_image", image_url: "https://a.example.com/b.png", detail: null, file_id: null }],
      },
      {
        role: "assistant",
        id: null,
        status: null,
        phase: null,
        content: [{ type: "output_text", text: "a", annotations: null, logprobs: null }],
      },
      { type: "reasoning", id: null, summary: [], content: null, encrypted_content: null, status: null },
      { type: "function_call", id: null, status: null, call_id: "c", name: "f", arguments: "{}" },
      { type: "function_call_output", id: null, status: null, call_id: "c", output: "ok" },
    ];
    const response = await gateway.post({
      model: "simulator",
      input,
      tools: [functionTool({ description: null, parameters: null, strict: null })],
    });
    expect(response.status).toBe(200);
  });
});

describe("a reference to an unknown id", () => {
  const foreign = ["resp_68a1b2c3d4e5f60718293a4b5c6d7e8f", "resp_", "conv_1", "💥", "../../etc/passwd", "local:x"];
  const ours = `resp_${"a".repeat(32)}`;

  it.each([ours, ...foreign])("previous_response_id %s is 400 previous_response_not_found", async (id) => {
    const response = await gateway.post({ model: "simulator", input: "Hello!", previous_response_id: id });
    await expectError(response, {
      status: 400,
      type: "invalid_request_error",
      param: "previous_response_id",
      code: "previous_response_not_found",
      message: `Previous response with id '${id}' not found.`,
    });
    expect(gateway.vllm.simulator.requests).toEqual([]);
  });

  it.each(["", long(65), long(1_000_000)])("previous_response_id of an invalid length is a 400", async (id) => {
    const response = await gateway.post({ model: "simulator", input: "Hello!", previous_response_id: id });
    await expectError(response, {
      status: 400,
      param: "previous_response_id",
      code: id === "" ? "string_below_min_length" : "string_above_max_length",
    });
  });

  it.each([`msg_${"a".repeat(32)}o0`, "msg_68a1b2c3d4e5f6", "💥"])(
    "item_reference %s is a 400 at its path",
    async (id) => {
      const input = [
        { role: "user" as const, content: "x" },
        { type: "item_reference" as const, id },
      ];
      const error = await rejection(gateway.openai.responses.create({ model: "simulator", input }));
      expect(error).toBeInstanceOf(BadRequestError);
      expect(error).toMatchObject({ status: 400, param: "input[1].id", code: "item_not_found" });
      expect(gateway.vllm.simulator.requests).toEqual([]);
    },
  );

  it("makes no tables when it is read", async () => {
    await gateway.post({ model: "simulator", input: "Hello!", previous_response_id: ours });
    await gateway.fetch(`${gateway.url}/v1/responses/${ours}`, { method: "DELETE" });
    const tables = "SELECT name FROM sqlite_schema WHERE name NOT LIKE '\\_cf%' ESCAPE '\\'";
    expect(gateway.storage.execAt(ours, tables)).toEqual([]);
  });
});

describe("queries", () => {
  let id: string;
  beforeAll(async () => {
    id = (await gateway.openai.responses.create({ model: "simulator", input: "Hello!" })).id;
  });

  it.each([
    ["limit=0", "limit", "below_min_value"],
    ["limit=101", "limit", "above_max_value"],
    ["limit=ten", "limit", "invalid_value"],
    ["limit=", "limit", "invalid_value"],
    ["order=sideways", "order", "invalid_value"],
    [`after=${long(65)}`, "after", "string_above_max_length"],
    ["include=everything", "include[0]", "invalid_value"],
    ["include[]=everything", "include[0]", "invalid_value"],
  ])("input_items?%s is a 400 that names %s", async (query, param, code) => {
    const response = await gateway.fetch(`${gateway.url}/v1/responses/${id}/input_items?${query}`);
    await expectError(response, { status: 400, param, code });
  });

  it.each([
    ["stream=true", "stream"],
    ["stream=yes", "stream"],
    ["starting_after=3", "starting_after"],
    ["starting_after=x", "starting_after"],
    ["starting_after=-1", "starting_after"],
    ["include=everything", "include[0]"],
  ])("?%s is a 400 for a response that did not run in the background", async (query, param) => {
    const response = await gateway.fetch(`${gateway.url}/v1/responses/${id}?${query}`);
    await expectError(response, { status: 400, type: "invalid_request_error", param });
  });
});

it("a 400 is a BadRequestError with four fields in the openai client", async () => {
  const error = await rejection(
    gateway.openai.responses.create({ model: "simulator", input: "Hello!", temperature: 3 }),
  );
  expect(error).toBeInstanceOf(BadRequestError);
  expect(error).toMatchObject({
    status: 400,
    type: "invalid_request_error",
    param: "temperature",
    code: "above_max_value",
    message: expect.stringContaining("temperature"),
    requestID: expect.any(String),
  });
});
