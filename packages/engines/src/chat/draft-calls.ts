import { type ClientTool, ClientTools } from "@responses-edge/responses-api/tool-names";
import { mustCall } from "@responses-edge/responses-api/tools";
import type { Prompt } from "@responses-edge/turn/contract/engine";
import { boundRules } from "../offered-tools.ts";
import type { DraftOptions } from "./draft.ts";
import { promptTools } from "./request.ts";

/**
 * The tools that the client answers, and those of them whose calls are shown while they are written: strict ones, where
 * the server constrains them (`bindsStrict`), and custom ones without a grammar, whose inputs are long and may be
 * anything.
 */
export function callsOf(prompt: Prompt, bindsStrict: boolean): Omit<DraftOptions, "format" | "wasTold"> {
  const { request } = prompt;
  const clients = ClientTools.of(request.tools);
  const named = request.tool_choice == null ? undefined : clients.named(request.tool_choice);
  const rules = boundRules(request);
  const callable = new Set<string>();
  const strict = new Set<string>();
  for (const tool of promptTools(prompt, "callable")) {
    if (named && tool.name !== named.flatName) continue;
    callable.add(tool.name);
    if (bindsStrict && tool.strict === true) strict.add(tool.name);
  }
  const answered = new Map<string, ClientTool>();
  const live = new Set<string>();
  for (const client of named ? [named] : clients.offered(request.tool_choice)) {
    const { flatName, tool } = client;
    answered.set(flatName, client);
    if ((tool.type === "custom" && !rules.has(flatName)) || strict.has(flatName)) live.add(flatName);
  }
  return { offered: callable, mustCall: mustCall(request.tool_choice), clients: answered, live, rules };
}
