import { ToolFault } from "@responses-edge/hosted-tools/mcp-client";
import { ApiError } from "@responses-edge/responses-api/errors";
import { fileId } from "@responses-edge/responses-api/ids";
import type { Replay } from "@responses-edge/turn/contract/engine";
import type { ContainerFileCitation } from "@responses-edge/turn/contract/tool-session";
import { z } from "zod";
import {
  type ContainerFiles,
  FILES_DIRECTORY,
  type GivenFile,
  type KeptFile,
  MAX_CONTAINER_BYTES,
  type PendingFile,
} from "../../contract/container-files.ts";
import type { OpenContainer } from "./turn-container.ts";

/**
 * The files of a container: those that the request gives to it, and those that its programs write. The tool server
 * takes and gives them by two tools, `write_file` and `read_file`, and the result of `python` names the files that a
 * call has written (docs/tools.md, "Files").
 */

/** Bytes of a piece of a file between here and the tool server: as base64 it fits into a message. */
const PIECE_BYTES = 512 * 1024;

/** Most files of a turn's programs that are kept. */
const MAX_KEPT_FILES = 50;

const MAX_PATH_LENGTH = 255;

const writtenFiles = z.object({
  files: z.array(z.object({ name: z.string().min(1).max(MAX_PATH_LENGTH), bytes: z.int().min(0) })).max(1_000),
});
const piece = z.object({ data: z.base64() });

/** The memory of a call for the turn's later rounds, and for a run that is resumed after a crash: JSON. */
interface CallMemory {
  kept: KeptFile[];
  container: string;
}

export class ProgramFiles {
  readonly #files: ContainerFiles | undefined;
  readonly #kept = new Map<string, { file: KeptFile; container: string }>();
  /** Ids of the files that have been cited. */
  readonly #cited = new Set<string>();
  #keptFiles = 0;
  #keptBytes = 0;

  constructor(files: ContainerFiles | undefined) {
    this.#files = files;
  }

  /** Restores what the turn had written and cited before a crash: `output` are its items. */
  remember(replays: readonly Replay[], output: readonly { type: string; id?: string }[]): void {
    const items = new Set(output.map(({ id }) => id));
    for (const { item, exchange } of replays) {
      if (exchange?.name !== "python" || !items.has(item)) continue;
      const { kept = [], container = "" } = (exchange.memory ?? {}) as Partial<CallMemory>;
      for (const file of kept) this.#note(file, container);
    }
    for (const item of output) {
      for (const { annotations = [] } of contentOf(item)) {
        for (const { file_id } of annotations) if (file_id !== undefined) this.#cited.add(file_id);
      }
    }
  }

  /** Writes a container's new files to the tool server, and removes those that were deleted. Throws ToolFault. */
  async tell(container: OpenContainer, pending: readonly PendingFile[], signal: AbortSignal): Promise<void> {
    for (const { key, path, isGone } of pending) {
      if (isGone) {
        await container.call("delete_file", { name: path }, { signal }).catch((error: unknown) => {
          // A server without this tool keeps the file until the container expires.
          if (!(error instanceof ToolFault && error.kind === "protocol")) throw error;
        });
        continue;
      }
      if (!this.#files) throw new ToolFault("unreachable", "There are no files here.");
      const { body } = await this.#files.read(fileId(key)).catch((error: unknown) => {
        throw error instanceof ApiError ? new ToolFault("tool", error.message) : error;
      });
      await this.#write(container, path, body, signal);
    }
  }

  /**
   * Keeps the files that a call has written, as the tool server lists them. Gives the memory for later rounds, and a
   * line for the model about each file that is not kept. Rejects only with the signal's reason when it is aborted.
   */
  async keep(
    container: OpenContainer,
    structured: unknown,
    signal: AbortSignal,
  ): Promise<{ memory?: CallMemory; notes: string[] }> {
    const files = this.#files;
    const written = writtenFiles.safeParse(structured);
    const kept: KeptFile[] = [];
    const notes: string[] = [];
    if (!files || !written.success) return { notes };
    for (const { name: path, bytes } of written.data.files) {
      try {
        if (this.#keptFiles >= MAX_KEPT_FILES) throw new ToolFault("tool", `A turn keeps ${MAX_KEPT_FILES} files.`);
        if (this.#keptBytes + bytes > MAX_CONTAINER_BYTES) {
          throw new ToolFault("tool", `A turn keeps ${MAX_CONTAINER_BYTES} bytes of files.`);
        }
        this.#keptFiles += 1;
        this.#keptBytes += bytes;
        const body = this.#read(container, path, bytes, signal);
        const file = await files.keep({ container: container.id, path, bytes: body });
        this.#note(file, container.id);
        kept.push(file);
      } catch (error) {
        signal.throwIfAborted();
        const why = error instanceof ApiError || error instanceof ToolFault ? error.message : "It could not be read.";
        notes.push(`[WARN] The user does not get ${FILES_DIRECTORY}/${path}: ${why}`);
      }
    }
    return { ...(kept.length > 0 && { memory: { kept, container: container.id } }), notes };
  }

  /**
   * The citations of a text: each file at the first position where the text links or names it; at the end, the files
   * that no text of the turn has named.
   */
  citationsIn(text: string): ContainerFileCitation[] {
    const found: { file: KeptFile; container: string; start: number; end: number }[] = [];
    for (const { file, container } of this.#kept.values()) {
      const place = placeOf(file, text);
      if (place) found.push({ file, container, ...place });
      else if (!this.#cited.has(file.id)) found.push({ file, container, start: text.length, end: text.length });
      this.#cited.add(file.id);
    }
    const points = codePointsOf(text);
    return found
      .toSorted((one, other) => one.start - other.start)
      .map(({ file: { id: file_id, filename }, container: container_id, start, end }) => {
        const start_index = points(start);
        const end_index = points(end);
        return { type: "container_file_citation", container_id, file_id, filename, start_index, end_index };
      });
  }

  /** A text means the newest file of a path. */
  #note(file: KeptFile, container: string): void {
    this.#kept.delete(file.path);
    this.#kept.set(file.path, { file, container });
  }

  async #write(
    container: OpenContainer,
    name: string,
    body: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<void> {
    let isFirst = true;
    for await (const bytes of inPieces(body)) {
      const args = { name, data: bytes.toBase64(), append: !isFirst };
      const { output, failed } = await container.call("write_file", args, { signal });
      if (failed) throw new ToolFault("tool", `The file '${name}' could not be given to the tool server: ${output}`);
      isFirst = false;
    }
  }

  async *#read(container: OpenContainer, name: string, bytes: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    for (let offset = 0; offset < bytes; ) {
      const length = Math.min(PIECE_BYTES, bytes - offset);
      const args = { name, offset, length };
      const { output, failed, structured } = await container.call("read_file", args, { signal });
      if (failed) throw new ToolFault("tool", output);
      const { data } = piece.parse(structured);
      const read = Uint8Array.fromBase64(data);
      if (read.length === 0 || read.length > length) throw new ToolFault("tool", "It was changed meanwhile.");
      yield read;
      offset += read.length;
    }
  }
}

/** The lines that tell a model of its files. */
export function noteOnFiles(given: readonly GivenFile[]): string {
  const names = given.map(({ filename }) => JSON.stringify(filename)).join(", ");
  const own = given.length > 0 ? `The user's files are in '${FILES_DIRECTORY}': ${names}.\n` : "";
  return `${own}Files that are written to '${FILES_DIRECTORY}' are given to the user: link them as [name](sandbox:${FILES_DIRECTORY}/name).`;
}

/** Pieces of at most `PIECE_BYTES`; one empty piece for an empty body. */
async function* inPieces(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const buffer = new Uint8Array(PIECE_BYTES);
  let length = 0;
  let isEmpty = true;
  for await (const bytes of body) {
    for (let at = 0; at < bytes.length; ) {
      const part = bytes.subarray(at, at + PIECE_BYTES - length);
      buffer.set(part, length);
      length += part.length;
      at += part.length;
      if (length < PIECE_BYTES) continue;
      yield buffer;
      length = 0;
      isEmpty = false;
    }
  }
  if (length > 0 || isEmpty) yield buffer.subarray(0, length);
}

/** The first position where a text links a file, or else names it. UTF-16 units. */
function placeOf({ path, filename }: KeptFile, text: string): { start: number; end: number } | undefined {
  for (const name of [`sandbox:${FILES_DIRECTORY}/${path}`, `${FILES_DIRECTORY}/${path}`, path, filename]) {
    for (let start = text.indexOf(name); start >= 0; start = text.indexOf(name, start + 1)) {
      const end = start + name.length;
      // Within a longer name, it is another file's.
      if (!/[\w/-]/.test(text.charAt(start - 1)) && !/^(?:[\w/-]|\.\w)/.test(text.slice(end, end + 2)))
        return { start, end };
    }
  }
  return undefined;
}

/** Counts the code points before positions of a text, which must come in ascending order. */
function codePointsOf(text: string): (place: number) => number {
  let at = 0;
  let points = 0;
  return (place) => {
    while (at < place) {
      at += (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
      points += 1;
    }
    return points;
  };
}

function contentOf(item: object): readonly { annotations?: readonly { file_id?: string }[] }[] {
  return "content" in item && Array.isArray(item.content) ? item.content : [];
}
