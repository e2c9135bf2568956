import type { ToolDescription } from "@responses-edge/turn/contract/engine";

/** The functions by which the root's model directs its agents. Their names are OpenAI's actions. */

const target = { type: "string", description: "The agent's name, such as /root/researcher." };
const message = { type: "string", minLength: 1, description: "The text for the agent." };

function action(
  name: string,
  description: string,
  properties: Record<string, unknown>,
  required: string[],
): ToolDescription {
  return { name, description, parameters: { type: "object", properties, required, additionalProperties: false } };
}

export const ACTIONS: readonly ToolDescription[] = [
  action(
    "spawn_agent",
    [
      "Creates a sub-agent that works on a task beside you, with the same model and tools. Use several for independent parts of a",
      "large task, then wait for them (wait_agent) and join their results. Its message must have everything that the agent needs to know.",
    ].join(" "),
    {
      task_name: {
        type: "string",
        pattern: "^[a-z0-9_]{1,64}$",
        description: "A name of the agent that is not in use: lower-case letters, digits and underscores.",
      },
      message,
      fork_turns: {
        type: "string",
        enum: ["none", "all"],
        description: "`all` gives the agent this conversation before its task; `none`, the default, only the task.",
      },
    },
    ["task_name", "message"],
  ),
  action("send_message", "Queues a message for an agent, which reads it with its next task.", { target, message }, [
    "target",
    "message",
  ]),
  action(
    "followup_task",
    "Gives a further task to an agent whose last result has come. It knows its earlier tasks.",
    { target, message },
    ["target", "message"],
  ),
  action(
    "wait_agent",
    "Waits until an agent's task has ended, and gives its result. Call it again while agents are still at work.",
    { timeout_ms: { type: "integer", minimum: 1, description: "The longest wait, in milliseconds." } },
    [],
  ),
  action("interrupt_agent", "Stops the task of an agent, which keeps what it knows.", { target }, ["target"]),
  action("list_agents", "Lists the agents with their state and latest task.", {}, []),
];
