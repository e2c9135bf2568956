import { CHANNELS, ROLES } from "./message.ts";

/** The fields of a message's header from any source: each may have any value. */
export interface HeaderFields {
  role?: unknown;
  name?: unknown;
  recipient?: unknown;
  channel?: unknown;
  content_type?: unknown;
}

export interface HeaderFault {
  field: keyof HeaderFields;
  /** A sentence for the sender of the field. */
  message: string;
}

const CONTENT_TYPES = ["json", "code", "<|constrain|>json", "<|constrain|>code"];

const NAME = /^[A-Za-z0-9_.:-]{1,128}$/;

/**
 * The first field that would change the meaning of the header (a recipient with a space is enough to name a channel),
 * or `undefined`. Fields that are `undefined` are absent; only `role`, and a tool's `name`, must not be.
 */
export function headerFault({ role, name, recipient, channel, content_type }: HeaderFields): HeaderFault | undefined {
  if (!isOneOf(ROLES, role)) return { field: "role", message: oneOf("role", ROLES) };
  if (name === undefined && role === "tool") return { field: "name", message: "A tool's message needs a 'name'." };
  if (name !== undefined && !isName(name)) return { field: "name", message: named("name") };
  if (recipient !== undefined && !isName(recipient)) return { field: "recipient", message: named("recipient") };
  if (channel !== undefined && !isOneOf(CHANNELS, channel)) {
    return { field: "channel", message: oneOf("channel", CHANNELS) };
  }
  if (content_type !== undefined && !isOneOf(CONTENT_TYPES, content_type)) {
    return { field: "content_type", message: oneOf("content_type", CONTENT_TYPES) };
  }
  return undefined;
}

function isName(value: unknown): boolean {
  return typeof value === "string" && NAME.test(value);
}

function isOneOf(values: readonly string[], value: unknown): boolean {
  return typeof value === "string" && values.includes(value);
}

function named(field: string): string {
  return `A '${field}' has 1 to 128 of the characters A-Z, a-z, 0-9, '_', '.', ':' and '-'.`;
}

function oneOf(field: string, values: readonly string[]): string {
  return `A '${field}' is one of ${values.map((value) => `'${value}'`).join(", ")}.`;
}
