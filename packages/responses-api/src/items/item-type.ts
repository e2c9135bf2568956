import type { ResponseStreamEvent } from "openai/resources/responses/responses";
import type { z } from "zod";
import type { InputPart } from "./parts.ts";

/**
 * The description of one item type. Each type has one, in the file of its name beside this one; `registry.ts` lists them, and every
 * union, list and schema of items and of their events is derived from that list.
 */
export type ItemType = Base & (MadeType | GivenType | StandIn) & ByKind;

/**
 * How an item stands in a prompt. A `call` is answered by the client, or, where its `execution` is `server`, by this server; an `output` is the
 * client's answer to one. A `server_call` is run by a server. `tools` and `settings` hold from there on, and no model reads them. Items
 * of the kind `none` stand in no prompt.
 */
export type ItemKind =
  | "message"
  | "reasoning"
  | "call"
  | "output"
  | "server_call"
  | "tools"
  | "settings"
  | "compaction"
  | "none";

interface Base {
  /** The schema of such an item in a request. It gives the item's normal form, which prompts are made of and the store keeps. */
  readonly input: z.core.$ZodTypeDiscriminable & z.ZodType;
  /** The tools of the item can be called from there on. */
  readonly bringsTools?: true;
}

/** A type that a turn can put out. */
interface MadeType {
  /** The beginning of such items' ids, as at OpenAI. */
  readonly prefix: string;
  /** Makes the schema of such an item in an answer. */
  readonly output: () => z.ZodType;
  /** Makes the schema of what clients give of the type and no turn puts out. */
  readonly stored?: () => z.ZodType;
  /** The field that the model writes, where events tell of it while it is written. */
  readonly written?: string;
  /** The events of such an item beside those of every item, and what makes the shape of each. */
  readonly events: { readonly [Type in ResponseStreamEvent["type"]]?: () => z.ZodRawShape };
}

/** A type that only clients give. */
interface GivenType {
  readonly prefix: string;
  readonly stored: () => z.ZodType;
  readonly output?: undefined;
  readonly events?: undefined;
}

/** A type that stands for something else: such an item is never kept. */
interface StandIn {
  readonly prefix?: undefined;
  readonly output?: undefined;
  readonly stored?: undefined;
  readonly events?: undefined;
}

type ByKind =
  | { readonly kind: "call"; called(item: never): ClientCall | undefined }
  | { readonly kind: "output"; answer(item: never, nameOf: NameOf): ClientOutput | undefined }
  | { readonly kind: Exclude<ItemKind, "call" | "output"> };

/** A call that the client answers, as models get to see it. */
export interface ClientCall {
  call_id: string;
  /** The name by which the model has called it. */
  flatName: string;
  /** As JSON. */
  arguments: string;
  /** The input of a custom tool, for models that write it as it is. */
  input?: string;
}

/** The client's answer to a call. */
export interface ClientOutput {
  call_id: string;
  output: string | InputPart[];
}

/** How a model knows a tool, by its namespace and name. */
export type NameOf = (namespace: string | undefined, name: string) => string;
