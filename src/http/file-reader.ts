import { WorkerEntrypoint } from "cloudflare:workers";
import { LongWork } from "@responses-edge/bounded-io/long-work";
import { drawPages, textOf, UnreadableFile, warmUp } from "@responses-edge/file-text";
import { FILE_HEADER, type FileToRead, fileOf, type ReadLine } from "../contract/file-reading.ts";

/**
 * Reads files in a process that does nothing else (`cli/serve/file-reading.ts`), on a socket of its own. A GET is answered
 * as soon as this thread is free. No other deployment exposes it.
 */
export class FileReader extends WorkerEntrypoint {
  override async fetch(request: Request): Promise<Response> {
    if (request.method !== "POST") {
      await warmUp();
      return new Response(null, { status: 204 });
    }
    const file = fileOf(request.headers.get(FILE_HEADER));
    const lines = linesOf(new Uint8Array(await request.arrayBuffer()), file);
    const encoder = new TextEncoder();
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          const { done, value } = await lines.next();
          if (done) controller.close();
          else controller.enqueue(encoder.encode(`${JSON.stringify(value)}\n`));
        },
        cancel: async () => void (await lines.return(undefined)),
      },
      { highWaterMark: 0 },
    );
    return new Response(body);
  }
}

async function* linesOf(bytes: Uint8Array, file: FileToRead): AsyncGenerator<ReadLine> {
  try {
    const work = new LongWork(file.tenant);
    yield* file.pictures ? drawPages(bytes, file.pictures, work) : textOf(bytes, file, file.limits, work);
    yield { end: true };
  } catch (error) {
    if (!(error instanceof UnreadableFile)) throw error;
    yield { unreadable: { code: error.code, message: error.message } };
  }
}
