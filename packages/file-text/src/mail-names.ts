/** Headers that only mails have. */
const HEADER = /^(?:from|received|return-path|message-id|delivered-to): ?\S/im;

/** Tells whether a file is a mail by its media type or its name. */
export function isNamedMail({ filename, mimeType = "" }: { filename: string; mimeType?: string | undefined }): boolean {
  return /\.eml$/i.test(filename) || /^\s*message\/rfc822\b/i.test(mimeType.slice(0, 64));
}

/** Tells whether a text is a mail: by its name or media type, and by the headers with which it begins. */
export function isMail(text: string, about: { filename: string; mimeType?: string | undefined }): boolean {
  const head = text.slice(0, 4_096).split(/\r?\n\r?\n/)[0] ?? "";
  return isNamedMail(about) && HEADER.test(head);
}
