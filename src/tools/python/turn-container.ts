import {
  type McpConnection,
  type McpToolResult,
  type OperationOptions,
  ToolFault,
} from "@responses-edge/hosted-tools/mcp-client";
import { ApiError } from "@responses-edge/responses-api/errors";
import { newContainerId } from "@responses-edge/responses-api/ids";
import type { MemoryLimit } from "@responses-edge/responses-api/platform/containers";
import { z } from "zod";
import type { ContainerFiles, ContainerUse, OwnContainer, PendingFile } from "../../contract/container-files.ts";
import type { SessionOptions } from "../plugin.ts";
import { toolServer } from "../tool-server.ts";

/**
 * The container of a turn. It is the one that the request names, or else the last one of the conversation, or a new one. Its
 * state is the session of the tool server, which is told with each call whether it must have the session: one that has lost
 * it then refuses the call, and the container is expired.
 */

/** A field of a call's `_meta`, for the tool server (docs/tools.md#the-protocol-of-a-tool-server). */
const SESSION_META = "responses-edge/session";

/** Added to the idle time of the tool server, so that the container expires here first. Seconds. */
const GRACE_SECONDS = 60;

const MEMORY_MB: Record<MemoryLimit, number> = { "1g": 1_024, "4g": 4_096, "16g": 16_384, "64g": 65_536 };

/** The answer of a tool server that does not have the session. */
const goneSession = z.object({ session: z.literal("gone") });

/** A container that is ready for calls. */
export interface OpenContainer {
  id: string;
  /** Calls a tool of the tool server. Throws as `McpConnection.callTool`, and the ToolFault of a container that the tool server has lost. */
  call(name: string, args: Record<string, unknown>, options: OperationOptions): Promise<McpToolResult>;
}

interface Options {
  turn: Pick<SessionOptions, "config" | "tenant" | "deadline" | "items" | "output" | "ownContainer">;
  files: ContainerFiles | undefined;
  /** The container that the request names. */
  named: string | undefined;
  own: OwnContainer;
  /** Tells the tool server of a container's files. */
  tell: (container: OpenContainer, pending: readonly PendingFile[], signal: AbortSignal) => Promise<void>;
}

export class TurnContainer {
  readonly #options: Options;
  #id: string;
  /** True if the container was used in the conversation, and it is not known whether it has expired. */
  readonly #isUnsure: boolean;
  #opening: Promise<void> | undefined;
  #isGone = false;
  #use: Extract<ContainerUse, { kind: "ready" }> | undefined;
  #server: McpConnection | undefined;
  /** For the model, with the next output. */
  #note = "";

  constructor(options: Options) {
    const { named, turn } = options;
    this.#options = options;
    const begun = lastContainer(turn.output);
    const earlier = begun ?? lastContainer(turn.items);
    this.#id = named ?? earlier ?? turn.ownContainer;
    this.#isUnsure = named === undefined && begun === undefined && earlier !== undefined;
  }

  /** Takes a new container if that of the conversation has expired. */
  open(): Promise<void> {
    this.#opening ??= this.#replaceExpired();
    return this.#opening;
  }

  async #replaceExpired(): Promise<void> {
    if (!this.#isUnsure || (await this.#options.files?.isRunning(this.#id)) !== false) return;
    this.#replace();
    this.#note = `[WARN] The container of the earlier calls has expired: this is a new one, without its variables and files.\n`;
  }

  /** The container of a call that begins now. A lost one has a successor, unless the request names it. */
  get id(): string {
    if (this.#isGone && this.#options.named === undefined) this.#replace();
    return this.#id;
  }

  /**
   * The container, ready for a program: it exists, the tool server is reached, and has the files. Throws the ToolFault of one that has
   * expired, or cannot be made, and what the tool server's calls throw.
   */
  async ready(signal: AbortSignal): Promise<OpenContainer> {
    if (this.#isGone) throw this.#expired();
    const { turn, files } = this.#options;
    this.#server ??= toolServer("python", turn, this.#id);
    if (!this.#use && files) {
      const use = await this.#begin(files);
      const isNew = !use.isOpen;
      this.#use = use;
      try {
        // A tool server that cannot be reached has no session: the container stays as it is.
        if (isNew) await this.#server.connect(signal);
        if (use.pending.length > 0) await this.#options.tell(this.#opened(), use.pending, signal);
        if (isNew || use.pending.length > 0) await files.settle(this.#id, use.pending);
      } catch (error) {
        this.#use = undefined;
        throw error;
      }
    }
    return this.#opened();
  }

  /** Gives the note for the model about its container, once. */
  takeNote(): string {
    const note = this.#note;
    this.#note = "";
    return note;
  }

  async close(): Promise<void> {
    if (this.#use) await this.#options.files?.touch(this.#id).catch(() => {});
    await this.#server?.close();
  }

  #opened(): OpenContainer {
    const id = this.#id;
    const server = this.#server as McpConnection;
    return {
      id,
      call: async (name, args, options) => {
        const result = await server.callTool(name, args, { ...options, meta: { [SESSION_META]: this.#session() } });
        if (goneSession.safeParse(result.structured).success) {
          this.#isGone = true;
          await this.#options.files?.lose(id);
          throw this.#expired();
        }
        if (this.#use) this.#use = { ...this.#use, isOpen: true };
        return result;
      },
    };
  }

  /** Tells the tool server about the session. */
  #session(): Record<string, unknown> {
    const { isOpen = false, minutes, memory } = this.#use ?? {};
    return {
      kept: isOpen,
      ...(minutes !== undefined && { idle_seconds: minutes * 60 + GRACE_SECONDS }),
      ...(memory && { memory_mb: MEMORY_MB[memory] }),
    };
  }

  async #begin(files: ContainerFiles): Promise<Extract<ContainerUse, { kind: "ready" }>> {
    const { named, own } = this.#options;
    let use: ContainerUse;
    try {
      use = await files.use(this.#id, named === undefined ? own : undefined);
    } catch (error) {
      throw error instanceof ApiError ? new ToolFault("tool", error.message) : error;
    }
    if (use.kind === "ready") return use;
    this.#isGone = true;
    throw this.#expired();
  }

  #replace(): void {
    const { turn } = this.#options;
    const old = this.#server;
    this.#id = this.#id === turn.ownContainer || this.#isGone ? newContainerId() : turn.ownContainer;
    this.#isGone = false;
    this.#use = undefined;
    this.#server = undefined;
    void old?.close();
  }

  #expired(): ToolFault {
    const next =
      this.#options.named === undefined
        ? "The next call gets a new container. Define again what it needs."
        : "The request names it, so this call has no other one.";
    return new ToolFault("tool", `Container is expired: its variables and files are gone. ${next}`);
  }
}

/** The container of the last call among items. */
function lastContainer(items: readonly object[]): string | undefined {
  const call = items.findLast((item) => "type" in item && item.type === "code_interpreter_call");
  return call && "container_id" in call && typeof call.container_id === "string" ? call.container_id : undefined;
}
