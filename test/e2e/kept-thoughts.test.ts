import type { ResponseInputItem } from "openai/resources/responses/responses";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Gateway, lastPrompt, startGateway } from "./support.ts";

const OPERATORS = "simulator-reasoning?old_thoughts=preserve_thinking&ttft=0";

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({
    KEEP_THOUGHTS: JSON.stringify({ [OPERATORS]: "all_turns", "simulator-reasoning?words=3": { own_switch: 1 } }),
  });
});
afterAll(() => gateway.close());

const tools = [{ type: "function", name: "look", parameters: null, strict: false }] as const;
const thought = { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "Greet them first." }] };
const input = [
  { role: "user", content: "Hello!" },
  thought,
  { role: "assistant", content: "Good day." },
  { role: "user", content: "Again!" },
] as unknown as ResponseInputItem[];

/** Asks a model with an earlier thought. Gives the template's variables, and the tokens of the prompt. */
async function asked(model: string, more: object = {}) {
  const { usage } = await gateway.openai.responses.create({ model, input, ...more });
  return { variables: lastPrompt(gateway).chat_template_kwargs, tokens: usage?.input_tokens ?? 0 };
}

describe("the thoughts of earlier turns", () => {
  it.each(["preserve_thinking", "preserved_thinking", "clear_thinking", "drop_thinking", "truncate_history_thinking"])(
    "are kept for agents by a template with the variable %s, whatever its name",
    async (variable) => {
      const model = `simulator-reasoning?old_thoughts=${variable}`;
      const agents = await asked(model, { tools });
      const kept = await asked("simulator-reasoning", { tools });
      expect(agents.tokens).toBe(kept.tokens);
      const dropped = await asked(model, { tools, reasoning: { context: "current_turn" } });
      expect(dropped.tokens).toBeLessThan(kept.tokens);
    },
  );

  it("are left to the template without tools, unless the request wants all of them", async () => {
    const model = "simulator-reasoning?old_thoughts=preserve_thinking&words=2";
    const left = await asked(model);
    expect(left.variables).toBeUndefined();
    const all = await asked(model, { reasoning: { context: "all_turns" } });
    expect(all.variables).toMatchObject({ preserve_thinking: true });
    expect(all.tokens).toBeGreaterThan(left.tokens);
  });

  it("need no variable where the template has none", async () => {
    for (const kind of ["kept", "dropped"]) {
      const { variables } = await asked(`simulator-reasoning?old_thoughts=${kind}`, { tools });
      expect(variables).toBeUndefined();
    }
  });

  it("are the operator's decision where the request makes none", async () => {
    const { variables } = await asked(OPERATORS);
    expect(variables).toMatchObject({ preserve_thinking: true });
    expect((await asked("simulator-reasoning?words=3")).variables).toEqual({ own_switch: 1 });
    const own = await asked(OPERATORS, { reasoning: { context: "current_turn" } });
    expect(own.variables).not.toMatchObject({ preserve_thinking: true });
  });

  it("are not decided against the client's own variables", async () => {
    const own = { tools, chat_template_kwargs: { preserve_thinking: false } };
    const { variables } = await asked("simulator-reasoning?old_thoughts=preserve_thinking&words=4", own);
    expect(variables).toMatchObject({ preserve_thinking: false });
  });
});
