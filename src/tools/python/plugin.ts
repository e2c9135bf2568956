import { parseArguments } from "@responses-edge/responses-api/json";
import { checkMemory } from "@responses-edge/responses-api/platform/containers";
import type { ToolDescription, ToolNamespace } from "@responses-edge/turn/contract/engine";
import { type CallItem, stepOf } from "@responses-edge/turn/contract/plugin";
import type { CalledTool } from "@responses-edge/turn/contract/tool-session";
import type { ResponseCodeInterpreterToolCall } from "openai/resources/responses/responses";
import type { GivenFile } from "../../contract/container-files.ts";
import { inOrder, type PluginSession, type RunnablePlugin, refuseArguments } from "../plugin.ts";
import { checkToolServer } from "../tool-server.ts";
import { noteOnFiles, ProgramFiles } from "./container-files.ts";
import { TurnContainer } from "./turn-container.ts";

/** `code_interpreter`: Python on the operator's tool server. */

interface PythonTool extends CalledTool {
  readonly kind: "python";
}

const TOOL: PythonTool = { kind: "python" };
const TOOLS = new Map([["python", TOOL]]);

/**
 * openai/harmony's to the letter (`ToolNamespaceConfig::python`, `src/chat.rs`): gpt-oss was trained with it. Its
 * message is the program itself, not JSON; so the namespace has no tool.
 */
const NAMESPACE: ToolNamespace = {
  name: "python",
  description: `Use this tool to execute Python code in your chain of thought. The code will not be shown to the user. This tool should be used for internal reasoning, but not for code that is intended to be visible to the user (e.g. when creating plots, tables, or files).

When you send a message containing Python code to python, it will be executed in a stateful Jupyter notebook environment. python will respond with the output of the execution or time out after 120.0 seconds. The drive at '/mnt/data' can be used to save and persist user files. Internet access for this session is UNKNOWN. Depends on the cluster.`,
  tools: [],
};

/** `python`, with the program as `code`: the argument of vLLM's Python tool. */
const FUNCTIONS: ToolDescription[] = [
  {
    name: "python",
    description: `Executes Python code in a stateful Jupyter notebook environment and returns its output. The code is not shown to the user. Use print() to see values.`,
    parameters: { type: "object", properties: { code: { type: "string" } }, required: ["code"] },
  },
];

const ITEM: CallItem<PythonTool, ResponseCodeInterpreterToolCall> = {
  type: "code_interpreter_call",
  // A plain script is shown while it is written; one in JSON or between fences when it is complete.
  canShow: (_tool, text, isComplete) => isComplete || /^\s*[^\s{`]/.test(text),
  create: (_tool, { id, container }) => ({
    id,
    type: "code_interpreter_call",
    status: "in_progress",
    code: null,
    container_id: container,
    outputs: null,
  }),
  written: {
    field: "code",
    deltaEvent: "response.code_interpreter_call_code.delta",
    doneEvent: "response.code_interpreter_call_code.done",
    whenShown: unwrapScript,
  },
  start(item) {
    item.status = "interpreting";
    return "response.code_interpreter_call.interpreting";
  },
  finish(item, { output }, include) {
    if (include.includes("code_interpreter_call.outputs")) item.outputs = [{ type: "logs", logs: output }];
    return "response.code_interpreter_call.completed";
  },
  toolOf: () => TOOL,
};

export const PYTHON: RunnablePlugin<PythonTool, ResponseCodeInterpreterToolCall> = {
  kind: "python",
  namespace: NAMESPACE,
  functions: FUNCTIONS,
  tools: TOOLS,
  fullName: () => "python",
  toFunctionCall: ({ name, arguments: body }) => ({ name, arguments: JSON.stringify({ code: unwrapScript(body) }) }),
  item: ITEM,
  exchanges: {
    code_interpreter_call(item) {
      if (item.code === null) return undefined;
      const logs = (item.outputs ?? []).map((part) => ("logs" in part ? String(part.logs) : `[${part.type}]`));
      return { name: "python", arguments: item.code, output: logs.join("\n"), step: stepOf(item) };
    },
  },
  check(tool, index, options) {
    if (tool.type === "code_interpreter" && typeof tool.container !== "string") {
      const { memory_limit: memory } = tool.container;
      const { memoryLimits } = options.config;
      if (memory !== undefined) checkMemory(memory, memoryLimits, `tools[${index}].container.memory_limit`);
    }
    checkToolServer("python")(tool, index, options);
  },
  session(turn) {
    const tool = turn.request.tools?.find((each) => each.type === "code_interpreter");
    const asked = tool?.type === "code_interpreter" ? tool.container : undefined;
    const named = typeof asked === "string" ? asked : undefined;
    const { file_ids: given = [], memory_limit: memory = null } = typeof asked === "object" ? asked : {};
    const written = new ProgramFiles(turn.containerFiles?.());
    const container = new TurnContainer({
      turn,
      files: turn.containerFiles?.(),
      named,
      own: { given, memory },
      tell: (opened, pending, signal) => written.tell(opened, pending, signal),
    });
    written.remember(turn.replays, turn.output);
    const next = inOrder(turn.deadline);
    return {
      offered: given.length > 0 ? withFiles(turn.givenFiles) : { namespace: NAMESPACE, functions: FUNCTIONS },
      open: () => container.open(),
      container: () => container.id,
      tools: TOOLS,
      run: async (call, signal, traceparent) => {
        const args = parseArguments(call.arguments);
        // Other objects may be scripts themselves.
        if (args && "code" in args) refuseArguments(args, FUNCTIONS[0]?.parameters);
        const code = unwrapScript(call.arguments);
        return next(async () => {
          const opened = await container.ready(signal);
          const result = await opened.call("python", { code }, { signal, traceparent });
          const { memory: remembered, notes } = await written.keep(opened, result.structured, signal);
          const output = [container.takeNote() + result.output, ...notes].join("\n");
          const { failed, error } = result;
          return { output, failed, error, ...(remembered && { memory: remembered }) };
        });
      },
      citationsIn: (text) => written.citationsIn(text),
      close: () => container.close(),
    };
  },
};

/** The tool's description for a model, with the names of the user's files. */
function withFiles(given: readonly GivenFile[]): PluginSession["offered"] {
  const note = noteOnFiles(given);
  return {
    namespace: { ...NAMESPACE, description: `${NAMESPACE.description}\n\n${note}` },
    functions: FUNCTIONS.map((each) => ({ ...each, description: `${each.description}\n${note}` })),
  };
}

const FENCED = /^\s*```[\w+-]*\r?\n([\s\S]*?)\r?\n?```\s*$/;

/**
 * The script of a message to `python`, which should be the whole body. The model sometimes wraps it, as `{"code": …}`
 * or between fences. Any other body is the script itself.
 */
export function unwrapScript(body: string): string {
  const script = fromJson(body);
  return FENCED.exec(script)?.[1] ?? script;
}

function fromJson(body: string): string {
  // A text that begins with a brace may still be a script.
  const code = body.trimStart().startsWith("{") ? parseArguments(body)?.code : undefined;
  return typeof code === "string" ? code : body;
}
