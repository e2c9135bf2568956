import { type CallLoop, type Request, withOthers } from "./code-request.ts";
import { type Form, filesIn, written } from "./code-values.ts";

const FORM: Form = {
  string: (text) => JSON.stringify(text),
  file: ({ name, type }) => `\`data:${type};base64,\${readFileSync(${JSON.stringify(name)}, "base64")}\``,
  key: (name) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)),
  words: { true: "true", false: "false", null: "null" },
  indent: "  ",
  space: " ",
};

/** A request as a TypeScript program. `.mts`: an ES module, which Node runs, in a folder of any kind. */
export function typescript(request: Request): string {
  const { body, transport, baseUrl, loop } = request;
  const isSocket = transport === "socket";
  return `// ask.mts: npm install openai${isSocket ? " ws" : ""} && node ask.mts
${filesIn(body) ? 'import { readFileSync } from "node:fs";\n' : ""}import OpenAI from "openai";
${isSocket ? 'import { ResponsesWS } from "openai/resources/responses/ws";\n' : ""}
const client = new OpenAI({ baseURL: ${JSON.stringify(baseUrl)} }); // reads OPENAI_API_KEY

${loop ? withCalls(loop, request) : oneRequest(request)}`;
}

function oneRequest(request: Request): string {
  const fields = fieldsOf(request);
  switch (request.transport) {
    case "socket":
      return `const socket = new ResponsesWS(client);
socket.on("response.output_text.delta", ({ delta }) => process.stdout.write(delta));
for (const end of ["response.completed", "response.failed", "response.incomplete"] as const) socket.on(end, () => socket.close());
socket.send(${fields});`;
    case "whole":
      return `const response = await client.responses.create(${fields});
console.log(response.output_text);`;
    default:
      return `const stream = await client.responses.create(${fields});
for await (const event of stream) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
}`;
  }
}

/** The fields of a request. The package's types lack some of them. */
function fieldsOf(request: Request): string {
  let untyped = "";
  const known = withOthers(request, (others) => {
    untyped = `  ...(${written(others, FORM, 1)} as object),\n`;
    return {};
  });
  if (untyped === "") return written(known, FORM);
  const lines = Object.entries(known).map(([name, value]) => `  ${FORM.key(name)}: ${written(value, FORM, 1)},\n`);
  return `{\n${lines.join("")}${untyped}}`;
}

/** The request again and again, with the results of the functions that it calls, until there is a final text. */
function withCalls({ functions, keptBy, isForced }: CallLoop, request: Request): string {
  const cases = functions.map(
    ({ name, parameters }) => `    case ${JSON.stringify(name)}:${parameters && ` // args: ${parameters}`}
      return \`${name} is not written yet. It was called with \${JSON.stringify(args)}.\`;
`,
  );
  const input =
    keptBy === "input" ? "[...(request.input as Input), ...(response.output as Input), ...outputs]" : "outputs";
  return `/** Gives the result of a function that the model calls, as text. Your code goes here. */
async function callFunction(name: string, args: Record<string, unknown>): Promise<string> {
  switch (name) {
${cases.join("")}    default:
      throw new Error(\`There is no function \${name}.\`);
  }
}

${keptBy === "input" ? "type Input = OpenAI.Responses.ResponseInput;\n" : ""}const request: OpenAI.Responses.ResponseCreateParamsNonStreaming = ${fieldsOf(request)};
for (;;) {
  const response = await client.responses.create(request);
  const outputs: OpenAI.Responses.ResponseInputItem.FunctionCallOutput[] = [];
  for (const item of response.output) {
    if (item.type !== "function_call") continue;
    const output = await callFunction(item.name, JSON.parse(item.arguments));
    outputs.push({ type: "function_call_output", call_id: item.call_id, output });
  }
  if (outputs.length === 0) {
    console.log(response.output_text);
    break;
  }
${keptBy === "previous_response_id" ? "  request.previous_response_id = response.id;\n" : ""}  request.input = ${input};
${isForced ? '  request.tool_choice = "auto";\n' : ""}}`;
}
