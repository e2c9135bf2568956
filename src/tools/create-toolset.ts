import { createHmac } from "node:crypto";
import type { Config } from "../config/index.ts";
import type { Replay } from "../contract/engine.ts";
import type { McpAccess } from "../contract/mcp-access.ts";
import type { Item } from "../items/registry.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import type { TurnAddress } from "../protocol/ids.ts";
import { hostedKey } from "../protocol/tools.ts";
import { Toolset } from "./toolset.ts";

/** What a turn knows before its tools are made. */
export interface ToolContext {
  address: TurnAddress;
  config: Config;
  /** Whose turn it is: containers of one tenant are apart from another's. */
  tenant: string;
  history: readonly Item[];
  input: readonly Item[];
  /** The raw messages behind the history. */
  replays: readonly Replay[];
  /** Items that the turn has put out before a crash. */
  output: readonly { type: string }[];
}

/** The tools of a turn, if it has any. Throws the 400s of `Toolset.of`. */
export function toolsetOf(
  request: CreateRequest,
  access: Readonly<Record<string, McpAccess>>,
  { address, config, tenant, history, input, replays, output }: ToolContext,
): Toolset | undefined {
  if (!request.tools?.some((tool) => hostedKey(tool) !== undefined) && !input.some(isApproval)) return undefined;
  return Toolset.of({
    request,
    config: config.tools,
    access,
    items: [...history, ...input],
    input,
    replays,
    output,
    ownContainer: `cntr_${address.home}${address.turn}`,
    // With a key nobody else can tell whose container it is, or name it.
    sessionOf: (container) =>
      createHmac("sha256", config.tools.apiKey ?? "")
        .update(`${tenant}\n${container}`)
        .digest("hex")
        .slice(0, 32),
  });
}

export function isApproval(item: Item): boolean {
  return item.type === "mcp_approval_response";
}
