/** Reads the bytes of an answer while they pass to the client. */
export interface PassedReader {
  /** Reads the next bytes. Gives the bytes that go to the client. */
  push(bytes: Uint8Array): readonly Uint8Array[];
  /** Gives the bytes that were held at the end of the answer. */
  end(): readonly Uint8Array[];
}

/**
 * The body, read by `reader` as it passes. `onEnd` is called once, when the body has ended or nobody reads it any more;
 * `isWhole`: it has ended well.
 */
export function passedBytes(
  body: ReadableStream<Uint8Array>,
  passed: PassedReader,
  onEnd: (isWhole: boolean) => void,
): ReadableStream<Uint8Array> {
  let hasEnded = false;
  const end = (isWhole: boolean) => {
    if (hasEnded) return;
    hasEnded = true;
    onEnd(isWhole);
  };
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          for (;;) {
            const { done, value } = await reader.read();
            const pieces = done ? passed.end() : passed.push(value);
            for (const piece of pieces) controller.enqueue(piece);
            if (done) break;
            if (pieces.length > 0) return;
          }
        } catch (error) {
          end(false);
          throw error;
        }
        end(true);
        controller.close();
      },
      async cancel(reason) {
        end(false);
        await reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
}
