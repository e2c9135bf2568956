import { env } from "cloudflare:workers";
import { linesOf } from "@responses-edge/bounded-io/body";
import { ApiError } from "@responses-edge/responses-api/errors";
import { type BoundedTask, headerOf, type LastLine, TASK_HEADER } from "../contract/bounded-tasks.ts";

/**
 * Tasks that run code of others, or read files of others: under `serve` each is done by a process of its own, which its
 * launcher bounds and ends (`cli/serve/bounded-processes.ts`). Cloudflare bounds each request itself, so that they are done in
 * place there.
 */

/** The service that does tasks elsewhere. */
export type TaskService = Pick<Fetcher, "fetch">;

/** The binding that `serve` adds (`cli/serve/workerd.ts`): its launcher, as a service. */
export const { BOUNDED_TASKS } = env as { BOUNDED_TASKS?: TaskService };

/** A task is tried this often: the process that does it, and one that waits, may die for reasons of their own. */
const MAX_TRIES = 3;

/** The last line of a task that came to an end; undefined if each process died that tried it. */
export type TaskEnd = Exclude<LastLine, { died: true }> | undefined;

/**
 * Has a task done elsewhere. Yields its lines as they come, each once, whatever dies meanwhile, and returns its end. Throws the
 * 503 of a server whose processes do not start, and the signal's reason.
 *
 * @param maxLineBytes The bytes of a line. A longer one ends the answer, as a process does that dies.
 */
export async function* linesOfTask<Line extends object>(
  service: TaskService,
  task: BoundedTask,
  body: Uint8Array<ArrayBuffer> | string,
  maxLineBytes: number,
  signal?: AbortSignal,
): AsyncGenerator<Line, TaskEnd> {
  const headers = { [TASK_HEADER]: headerOf(task) };
  let given = 0;
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const answer = await service
      .fetch("http://task/", { method: "POST", headers, body, signal })
      .catch(() => undefined);
    signal?.throwIfAborted();
    if (!(answer?.ok && answer.body)) throw unavailable(task);
    let come = 0;
    let last: LastLine | undefined;
    // To its end: a process whose answer is not wanted any more is killed.
    for await (const line of wholeLines<Line>(linesOf(answer.body, maxLineBytes))) {
      if (isLast(line)) last = line;
      else {
        come += 1;
        if (come <= given) continue;
        given = come;
        yield line;
      }
    }
    signal?.throwIfAborted();
    if (last && !("died" in last)) return last;
  }
  return undefined;
}

function isLast(line: object): line is LastLine {
  return "end" in line || "unreadable" in line || "passed" in line || "died" in line;
}

/** Lines up to where the answer ends or breaks off. */
async function* wholeLines<Line>(lines: AsyncGenerator<Uint8Array>): AsyncGenerator<Line | LastLine> {
  const decoder = new TextDecoder();
  for (;;) {
    const line = await lines.next().catch(() => undefined);
    if (!line || line.done) return;
    yield JSON.parse(decoder.decode(line.value)) as Line | LastLine;
  }
}

function unavailable({ type }: BoundedTask): ApiError {
  const [what, code] =
    type === "file"
      ? ["Files cannot be read", "file_reader_unavailable"]
      : ["Programs cannot run", "program_runner_unavailable"];
  const message = `${what} at the moment. Please retry in a few seconds.`;
  return new ApiError({ status: 503, message, code, headers: { "retry-after": "5" } });
}
