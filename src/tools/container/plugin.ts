import { parseArguments } from "@responses-edge/responses-api/json";
import type { ToolNamespace } from "@responses-edge/turn/contract/engine";
import type { CalledTool } from "@responses-edge/turn/contract/tool-session";
import type { ResponseOutputItem } from "openai/resources/responses/responses";
import { MCP_CALL, newMcpCall } from "../mcp/plugin.ts";
import { asFunctions, inOrder, type RunnablePlugin, refuseArguments } from "../plugin.ts";
import { CLEAN_UP_TOOL, checkToolServer, toolServer } from "../tool-server.ts";

/**
 * vLLM's `container`: a shell on the operator's tool server. OpenAI has no item for it: its calls are shown as those of a
 * tool `exec` of an MCP server `container`.
 */

interface ContainerTool extends CalledTool {
  readonly kind: "container";
}

const TOOL: ContainerTool = { kind: "container" };
const TOOLS = new Map([
  ["container.exec", TOOL],
  ["container_exec", TOOL],
]);

const SHOWN_AS = { label: "container", name: "exec" };

/** openai/harmony has no text for it. The arguments are those in vLLM's documentation of its container tool. */
const NAMESPACE: ToolNamespace = {
  name: "container",
  description: "Utilities for interacting with a container, for example, a Docker container.",
  tools: [
    {
      name: "exec",
      description: `Runs the command \`cmd\` in the container and returns its output.
If \`workdir\` is not provided, the container's default working directory is used.
Calls with the same \`session_name\` share a session. \`timeout\` is in seconds.`,
      parameters: {
        type: "object",
        properties: {
          cmd: { type: "array", items: { type: "string" } },
          workdir: { type: "string" },
          env: { type: "object", additionalProperties: { type: "string" } },
          session_name: { type: "string" },
          timeout: { type: "number" },
          user: { type: "string" },
        },
        required: ["cmd"],
      },
    },
  ],
};

/** `container_exec`. */
const FUNCTIONS = asFunctions(NAMESPACE);

export const CONTAINER: RunnablePlugin<ContainerTool, ResponseOutputItem.McpCall> = {
  kind: "container",
  namespace: NAMESPACE,
  functions: FUNCTIONS,
  tools: TOOLS,
  fullName: () => "container.exec",
  toFunctionCall: ({ arguments: json }) => ({ name: "container_exec", arguments: json }),
  item: {
    ...MCP_CALL,
    canShow: () => true,
    create: (_tool, begun) => newMcpCall(SHOWN_AS, begun),
    toolOf: ({ server_label, name }) => (server_label === SHOWN_AS.label && name === SHOWN_AS.name ? TOOL : undefined),
  },
  check: checkToolServer("container"),
  session(turn) {
    const server = toolServer("container", turn, turn.ownContainer);
    const next = inOrder(turn.deadline);
    return {
      offered: { namespace: NAMESPACE, functions: FUNCTIONS },
      tools: TOOLS,
      run: (call, signal, traceparent) =>
        next(async () => {
          refuseArguments(parseArguments(call.arguments), FUNCTIONS[0]?.parameters);
          return server.callTool("exec", call.arguments, { signal, traceparent });
        }),
      close: () => server.close(CLEAN_UP_TOOL),
    };
  },
};
