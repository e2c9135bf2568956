import { type CallLoop, callLoopOf, knownFields, overHttp, withListedInput } from "./code-request.ts";
import { type Form, filesIn, written } from "./code-values.ts";
import type { Transport } from "./sending.ts";

const FORM: Form = {
  string: (text) => JSON.stringify(text),
  file: ({ name, type }) => `\`data:${type};base64,\${readFileSync(${JSON.stringify(name)}, "base64")}\``,
  key: (name) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)),
  words: { true: "true", false: "false", null: "null" },
  indent: "  ",
  space: " ",
};

/** A request as a TypeScript program. `.mts`: an ES module, which Node runs, in a folder of any kind. */
export function typescript(body: Record<string, unknown>, transport: Transport, baseUrl: string): string {
  const loop = callLoopOf(body, transport);
  const isSocket = transport === "socket";
  const lines = [
    `// ask.mts: npm install openai${isSocket ? " ws" : ""} && node ask.mts`,
    ...(filesIn(body) ? ['import { readFileSync } from "node:fs";'] : []),
    'import OpenAI from "openai";',
    ...(isSocket ? ['import { ResponsesWS } from "openai/resources/responses/ws";'] : []),
    "",
    `const client = new OpenAI({ baseURL: ${JSON.stringify(baseUrl)} }); // reads OPENAI_API_KEY`,
    ...(loop ? outputsOf(loop) : []),
    "",
    ...(loop ? withCalls(loop, body, transport) : oneRequest(body, transport)),
  ];
  return lines.join("\n");
}

function oneRequest(body: Record<string, unknown>, transport: Transport): string[] {
  if (transport === "socket") {
    return [
      "const socket = new ResponsesWS(client);",
      'socket.on("response.output_text.delta", ({ delta }) => process.stdout.write(delta));',
      'for (const end of ["response.completed", "response.failed", "response.incomplete"] as const) socket.on(end, () => socket.close());',
      `socket.send(${fieldsOf({ type: "response.create", ...body })});`,
    ];
  }
  const args = fieldsOf(overHttp(body, transport));
  if (transport === "whole") {
    return [`const response = await client.responses.create(${args});`, "console.log(response.output_text);"];
  }
  return [
    `const stream = await client.responses.create(${args});`,
    "for await (const event of stream) {",
    '  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);',
    "}",
  ];
}

/** The fields of a request. The package's types lack some of them. */
function fieldsOf(body: Record<string, unknown>): string {
  const { known, others } = knownFields(body);
  if (!others) return written(known, FORM);
  const lines = Object.entries(known).map(([name, value]) => `  ${FORM.key(name)}: ${written(value, FORM, 1)},`);
  return `{\n${lines.join("\n")}\n  ...(${written(others, FORM, 1)} as object),\n}`;
}

/** Functions that answer the calls of a response. */
function outputsOf({ functions }: CallLoop): string[] {
  return [
    "",
    "/** Gives the result of a function that the model calls, as text. Your code goes here. */",
    "async function callFunction(name: string, args: Record<string, unknown>): Promise<string> {",
    "  switch (name) {",
    ...functions.flatMap(({ name, parameters }) => [
      `    case ${JSON.stringify(name)}:${parameters.length > 0 ? ` // args: ${parameters.join(", ")}` : ""}`,
      `      return \`${name} is not written yet. It was called with \${JSON.stringify(args)}.\`;`,
    ]),
    "    default:",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the sample's.
    "      throw new Error(`There is no function ${name}.`);",
    "  }",
    "}",
    "",
    "async function outputsOf({ output }: OpenAI.Responses.Response) {",
    "  const outputs: OpenAI.Responses.ResponseInputItem.FunctionCallOutput[] = [];",
    "  for (const item of output) {",
    '    if (item.type !== "function_call") continue;',
    "    const result = await callFunction(item.name, JSON.parse(item.arguments));",
    '    outputs.push({ type: "function_call_output", call_id: item.call_id, output: result });',
    "  }",
    "  return outputs;",
    "}",
  ];
}

/** The request again and again, with the results of the functions that it calls, until there is a final text. */
function withCalls(loop: CallLoop, body: Record<string, unknown>, transport: Transport): string[] {
  const begun = loop.keptBy === "input" ? withListedInput(body) : body;
  const change = [
    ...(loop.keptBy === "previous_response_id" ? ["  request.previous_response_id = response.id;"] : []),
    loop.keptBy === "input"
      ? "  request.input = [...(request.input as Input), ...(response.output as Input), ...outputs];"
      : "  request.input = outputs;",
    ...(loop.isForced ? ['  request.tool_choice = "auto";'] : []),
  ];
  const end = ["  const outputs = await outputsOf(response);", "  if (outputs.length === 0) "];
  const typed = (type: string, fields: Record<string, unknown>) =>
    `const request: OpenAI.Responses.${type} = ${fieldsOf(fields)};`;
  if (transport === "socket") {
    return [
      typed("ResponsesClientEvent.ResponseCreate", { type: "response.create", ...begun }),
      "const socket = new ResponsesWS(client);",
      'socket.on("response.output_text.delta", ({ delta }) => process.stdout.write(delta));',
      'socket.on("response.completed", async ({ response }) => {',
      `${end.join("\n")}return socket.close();`,
      ...change,
      "  socket.send(request);",
      "});",
      'for (const end of ["response.failed", "response.incomplete"] as const) socket.on(end, () => socket.close());',
      "socket.send(request);",
    ];
  }
  const isWhole = transport === "whole";
  return [
    ...(loop.keptBy === "input" ? ["type Input = OpenAI.Responses.ResponseInput;"] : []),
    typed(`ResponseCreateParams${isWhole ? "NonStreaming" : "Streaming"}`, overHttp(begun, transport)),
    ...(isWhole ? [] : STREAMING),
    "for (;;) {",
    `  const response = await ${isWhole ? "client.responses.create(request)" : "send()"};`,
    `${end.join("\n")}${isWhole ? "{\n    console.log(response.output_text);\n    break;\n  }" : "break;"}`,
    ...change,
    "}",
  ];
}

const STREAMING = [
  "",
  "/** Prints the text of an answer as it comes. Gives the response when it has ended. */",
  "async function send() {",
  "  for await (const event of await client.responses.create(request)) {",
  '    if (event.type === "response.output_text.delta") process.stdout.write(event.delta);',
  '    if (event.type === "response.completed" || event.type === "response.incomplete") return event.response;',
  "  }",
  '  throw new Error("The response has failed.");',
  "}",
  "",
];
