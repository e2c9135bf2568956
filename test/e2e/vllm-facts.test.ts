import { beforeEach, describe } from "vitest";
import { facts } from "../vllm/facts/all.ts";
import { startSimulator } from "../vllm/simulated-server.ts";

/** Not true yet: each leaves this list with the change that makes it true, and the list leaves with the last. */
const NOT_YET = new Set([
  "chat > answers > what was written to the prefix cache is told where the server tells it",
  "chat > functions > functions with strict: true > a call of a function that was not offered is none of the client's",
  "chat > functions > functions with strict: true > a completed call has arguments that can be parsed",
  "chat > functions > functions with strict: false > a call of a function that was not offered is none of the client's",
  "chat > functions > functions with strict: false > a completed call has arguments that can be parsed",
  "chat > functions > a strict function's arguments keep to its schema, whatever the model would like",
  "chat > formats > json_schema: a model that would say something else is bound",
  "chat > formats > json_schema with tools in auto: find_strictly > a tool can be called; the schema binds the final text only",
  "chat > formats > json_schema with tools in auto: find > a tool can be called; the schema binds the final text only",
  "chat > formats > a schema that the server refuses, stream: false > is a 400 that names the format, before the stream begins",
  "chat > formats > a schema that the server refuses, stream: true > is a 400 that names the format, before the stream begins",
  "chat > tokens > stop > leaves the logprobs of what is said",
  "chat > the window > stream: false > max_output_tokens above the window is refused by its own name",
  "chat > the window > stream: true > max_output_tokens above the window is refused by its own name",
  "chat > the window > max_output_tokens of what the window is, or of what is left, is none too many",
  "chat > deaths > the engine is killed while it generates, and the server started again > every answer goes on where it was, and one begun meanwhile begins",
  "chat > deaths > the server is terminated while it generates, and started again > its silence is noticed, and every answer goes on",
  "chat > deaths > two replicas behind a TCP balancer > one is killed: what it was generating goes on on the other",
  "harmony > answers > an answer is said to its end, with the thoughts apart",
  "harmony > functions > functions with strict: true > a call of a function that was not offered is none of the client's",
  "harmony > functions > functions with strict: true > a completed call has arguments that can be parsed",
  "harmony > functions > functions with strict: false > a call of a function that was not offered is none of the client's",
  "harmony > functions > functions with strict: false > a completed call has arguments that can be parsed",
  "harmony > functions > a strict function's arguments keep to its schema, whatever the model would like",
  "harmony > formats > json_schema: a model that would say something else is bound",
  "harmony > formats > a schema that the server refuses, stream: false > is a 400 that names the format, before the stream begins",
  "harmony > formats > a schema that the server refuses, stream: true > is a 400 that names the format, before the stream begins",
  "harmony > tokens > logprobs > are those of the text's own tokens, byte by byte",
  "harmony > tokens > logprobs > come with the deltas that they belong to",
  "harmony > tokens > stop > ends the answer before the string, and leaves none of it",
  "harmony > tokens > stop > leaves the logprobs of what is said",
  "harmony > tokens > stop > does not end a gpt-oss in its analysis",
  "harmony > the window > stream: false > max_output_tokens above the window is refused by its own name",
  "harmony > the window > stream: true > max_output_tokens above the window is refused by its own name",
  "harmony > the window > max_output_tokens of what the window is, or of what is left, is none too many",
  "harmony > deaths > the engine is killed while it generates, and the server started again > every answer goes on where it was, and one begun meanwhile begins",
]);
beforeEach(({ task, skip }) => skip(NOT_YET.has(task.fullTestName)));

/** The facts that `npm run test:vllm` shows of a real vLLM, here of the simulator. */
describe.each(["chat", "harmony"] as const)("%s", (engine) => {
  const variables = { VLLM_SILENCE_MS: "300" };
  facts({ engine, serve: startSimulator, owned: true, restartMs: 20_000, tokenMs: 15, variables });
});
