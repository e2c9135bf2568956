import PostalMime, { type Email } from "postal-mime";
import { UnreadableFile } from "./limits.ts";

/** The parts of a mail (RFC 5322, MIME) that a reader sees. */
export interface Mail {
  /** The lines that say from whom, to whom and when, and the subject. */
  head: string;
  text: string | undefined;
  html: string | undefined;
  attachments: { filename: string; mimeType: string; bytes: Uint8Array }[];
}

/** Throws an UnreadableFile for a mail that cannot be read. */
export async function readMail(bytes: Uint8Array): Promise<Mail> {
  let mail: Email;
  try {
    mail = await PostalMime.parse(bytes, {
      attachmentEncoding: "arraybuffer",
      maxNestingDepth: 32,
      maxHeadersSize: 1_048_576,
    });
  } catch {
    throw new UnreadableFile("invalid_file", "The file is damaged: it is no mail that can be read.");
  }
  const people = (all: Email["to"]) =>
    all?.map(({ name, address }) => (name && address ? `${name} <${address}>` : name || address || "")).join(", ");
  const lines = [
    ["From", people(mail.from && [mail.from])],
    ["To", people(mail.to)],
    ["Cc", people(mail.cc)],
    ["Date", mail.date],
    ["Subject", mail.subject],
  ] as const;
  return {
    head: lines.flatMap(([name, value]) => (value ? [`${name}: ${value}`] : [])).join("\n"),
    text: mail.text,
    html: mail.html,
    attachments: mail.attachments.map(({ filename, mimeType, content }) => ({
      filename: filename ?? "unnamed",
      mimeType,
      bytes: typeof content === "string" ? new TextEncoder().encode(content) : new Uint8Array(content),
    })),
  };
}
