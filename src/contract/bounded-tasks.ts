import type { PagePicture, PicturesWanted, TextLimits, TextPage, UnreadableFile } from "@responses-edge/file-text";

/**
 * How a Worker under `serve` has a task done by a process of its own (`cli/serve/bounded-processes.ts`): a POST with a file's
 * bytes, or with a `ProgramRun` as JSON, and an answer with a line of JSON for each page, its text or its picture, or with one
 * for the program's step, and a last line that is neither.
 */

/** The header with the `BoundedTask` as JSON, percent-encoded. */
export const TASK_HEADER = "x-task";

export type BoundedTask = FileToRead | ProgramToRun;

export interface FileToRead {
  type: "file";
  /** The owner: tenants' tasks of a type are done in turn. */
  tenant: string;
  filename: string;
  mimeType?: string | undefined;
  limits: Partial<TextLimits>;
  /** Has pages drawn. Absent: the text is read. */
  pictures?: PicturesWanted;
}

export interface ProgramToRun {
  type: "program";
  tenant: string;
}

/** The bound that a task has passed. */
export type PassedBound = "time" | "memory";

/** The last line: all was sent; the file is unreadable; a bound was passed; or the process died, and another one may do the task. */
export type LastLine =
  | { end: true }
  | { unreadable: Pick<UnreadableFile, "code" | "message"> }
  | { passed: PassedBound }
  | { died: true };

/** A line that is not the last. A step is a `ProgramStep` as JSON. */
export type TaskLine = TextPage | PagePicture | { step: string };

/** The header's value for a task. */
export function headerOf(task: BoundedTask): string {
  return encodeURIComponent(JSON.stringify(task));
}

/** The task that a header's value describes. */
export function taskOf(header: string | null | undefined): BoundedTask {
  return JSON.parse(decodeURIComponent(header ?? "")) as BoundedTask;
}
