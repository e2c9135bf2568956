import type { ResponseStreamEvent } from "openai/resources/responses/responses";
import type { z } from "zod";
import type { InputPart } from "./parts.ts";

/**
 * The description of one item type. Each type has one, in the file of its name beside this one; `registry.ts` lists them, and every
 * union, list and schema of items and of their events is derived from that list.
 */
export type ItemType = Base & (MadeType | GivenType | StandIn) & ByKind;

/**
 * The form of an item in a prompt. The client answers a `call`, or this server if its `execution` is `server`; an
 * `output` is the client's answer to one. A server runs a `server_call`. `tools` and `settings` apply from there on,
 * and no model reads them. Items of the kind `none` are in no prompt.
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
  /** The schema of such an item in a request. It gives the item's normal form, which prompts and the store use. */
  readonly input: z.core.$ZodTypeDiscriminable & z.ZodType;
  /** The item's tools can be called from there on. */
  readonly bringsTools?: true;
}

/** A type that may be in a turn's output. */
interface MadeType {
  /** The prefix of such items' ids, as at OpenAI. */
  readonly prefix: string;
  /** Makes the schema of such an item in an answer. */
  readonly output: () => z.ZodType;
  /** Makes the schema of items of the type that only clients send. */
  readonly stored?: () => z.ZodType;
  /** The field that the model writes, if events stream it. */
  readonly written?: string;
  /** The events of such an item beside those of every item, with the functions that make their shapes. */
  readonly events: { readonly [Type in ResponseStreamEvent["type"]]?: () => z.ZodRawShape };
}

/** A type that only clients send. */
interface GivenType {
  readonly prefix: string;
  readonly stored: () => z.ZodType;
  readonly output?: undefined;
  readonly events?: undefined;
}

/** A type that refers to something else: such an item is never stored. */
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

/** A call that the client answers, in the model's form. */
export interface ClientCall {
  call_id: string;
  /** The name of the call in the model's output. */
  flatName: string;
  /** As JSON. */
  arguments: string;
  /** The input of a custom tool, for models that write it unquoted. */
  input?: string;
}

/** The client's answer to a call. */
export interface ClientOutput {
  call_id: string;
  output: string | InputPart[];
}

/** A model's name of a tool, by its namespace and name. */
export type NameOf = (namespace: string | undefined, name: string) => string;
