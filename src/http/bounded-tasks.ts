import { WorkerEntrypoint } from "cloudflare:workers";
import { LongWork } from "@responses-edge/bounded-io/long-work";
import { drawPages, textOf, UnreadableFile, warmUp } from "@responses-edge/file-text";
import { loaderRunner, type ProgramRun } from "@responses-edge/programs";
import { type FileToRead, type LastLine, TASK_HEADER, type TaskLine, taskOf } from "../contract/bounded-tasks.ts";

/**
 * Reads files and runs programs in a process that does nothing else (`cli/serve/bounded-processes.ts`), on a socket of its
 * own. A GET is answered as soon as this thread is free. No other deployment exposes it.
 */
export class BoundedTasks extends WorkerEntrypoint<{ PROGRAM_LOADER: WorkerLoader }> {
  override async fetch(request: Request): Promise<Response> {
    if (request.method !== "POST") {
      await warmUp();
      return new Response(null, { status: 204 });
    }
    const task = taskOf(request.headers.get(TASK_HEADER));
    const bytes = new Uint8Array(await request.arrayBuffer());
    const lines = task.type === "file" ? pagesOf(bytes, task) : this.#stepOf(bytes, task.tenant, request.signal);
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

  async *#stepOf(bytes: Uint8Array, tenant: string, signal: AbortSignal): AsyncGenerator<TaskLine | LastLine> {
    const run = JSON.parse(new TextDecoder().decode(bytes)) as ProgramRun;
    yield { step: JSON.stringify(await loaderRunner(this.env.PROGRAM_LOADER).step(run, tenant, signal)) };
    yield { end: true };
  }
}

async function* pagesOf(bytes: Uint8Array, file: FileToRead): AsyncGenerator<TaskLine | LastLine> {
  try {
    const work = new LongWork(file.tenant);
    yield* file.pictures ? drawPages(bytes, file.pictures, work) : textOf(bytes, file, file.limits, work);
    yield { end: true };
  } catch (error) {
    if (!(error instanceof UnreadableFile)) throw error;
    yield { unreadable: { code: error.code, message: error.message } };
  }
}
