/** Reads whole bodies of others, within bounds. Nothing else reads whole bodies. */

export interface ReadBounds {
  /** The maximum length after decoding. */
  maxBytes: number;
  /** For the whole body, from now. */
  timeoutMs: number;
  /** Aborting it ends the reading with its reason. */
  signal: AbortSignal;
}

/** The reason why a body was not read to its end: it is too large, took too long, or its connection was lost. */
export class ReadFault extends Error {
  override readonly name = "ReadFault";
  readonly kind: "too_large" | "timeout" | "lost";

  constructor(kind: ReadFault["kind"]) {
    super(`The body could not be read: ${kind}.`);
    this.kind = kind;
  }
}

/** An answer: a `Response`, or the part of one that is needed. */
type Readable = Pick<Response, "body"> & { headers: Pick<Headers, "get"> };

/**
 * The body of a response, whole. Keeps no more than `maxBytes` of it, whatever is sent. Throws ReadFault, and the
 * signal's reason when it is aborted; what is left of the body is then cancelled.
 */
export async function readBounded(
  { body, headers }: Readable,
  { maxBytes, timeoutMs, signal }: ReadBounds,
): Promise<Uint8Array<ArrayBuffer>> {
  if (!body) return new Uint8Array();
  const reader = body.getReader();
  const { promise: ended, reject } = Promise.withResolvers<never>();
  ended.catch(() => {});
  const onAbort = () => reject(signal.reason);
  const timer = setTimeout(() => reject(new ReadFault("timeout")), timeoutMs);
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  try {
    if (Number(headers.get("content-length") ?? 0) > maxBytes) throw new ReadFault("too_large");
    for (;;) {
      const { done, value } = await Promise.race([reader.read(), ended]);
      if (done) break;
      length += value.byteLength;
      if (length > maxBytes) throw new ReadFault("too_large");
      chunks.push(value);
    }
  } catch (error) {
    reader.cancel().catch(() => {});
    if (signal.aborted) throw signal.reason;
    throw error instanceof ReadFault ? error : new ReadFault("lost");
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
  return concatBytes(chunks);
}

/** The same, as text: UTF-8. */
export async function readBoundedText(response: Readable, bounds: ReadBounds): Promise<string> {
  return new TextDecoder().decode(await readBounded(response, bounds));
}

/** Chunks as one array; a single one unchanged. */
export function concatBytes<Buffer extends ArrayBufferLike>(
  chunks: readonly Uint8Array<Buffer>[],
): Uint8Array<Buffer | ArrayBuffer> {
  const [first] = chunks;
  if (first && chunks.length === 1) return first;
  const bytes = new Uint8Array(chunks.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.byteLength;
  }
  return bytes;
}
