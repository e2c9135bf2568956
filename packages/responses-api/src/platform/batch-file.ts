import { linesOf, ReadFault } from "@responses-edge/bounded-io/body";
import { MAX_VALUES, nestedTooDeeply, structureFault } from "@responses-edge/bounded-io/json-text";
import { ApiError, invalidRequest } from "../errors.ts";
import { parse } from "../validation-errors.ts";
import { type BatchEndpoint, type BatchFault, type BatchLine, batchLine, MAX_BATCH_LINES } from "./batches.ts";

/** The lines of a batch's input file. */

/** Bytes of one line. */
const MAX_LINE_BYTES = 8 * 1024 * 1024;

/** The maximum of reported faults of one file. */
const MAX_FAULTS = 100;

/** A line, or its fault. `no` counts from 1. */
export type ReadLine = { no: number } & (
  | { line: BatchLine; fault?: undefined }
  | { line?: undefined; fault: BatchFault }
);

/** Reads the lines of a file one by one. Throws the 400 of a line that is too long. */
export async function* readBatch(
  file: ReadableStream<Uint8Array>,
  endpoint: BatchEndpoint,
): AsyncGenerator<ReadLine & { bytes: number }> {
  let no = 0;
  try {
    for await (const bytes of linesOf(file, MAX_LINE_BYTES)) {
      no += 1;
      yield { ...readLine(bytes, no, endpoint), bytes: bytes.length };
    }
  } catch (error) {
    if (!(error instanceof ReadFault)) throw error;
    throw invalidRequest("input_file_id", `A line may have ${MAX_LINE_BYTES} bytes.`, "invalid_line");
  }
}

function readLine(bytes: Uint8Array, no: number, endpoint: BatchEndpoint): ReadLine {
  const faulty = (code: string, message: string, param: string | null): ReadLine => ({
    no,
    fault: { code, message, param, line: no },
  });
  // The bounds of a request's body.
  const structure = structureFault(bytes);
  if (structure === "depth") {
    return faulty("invalid_json_line", nestedTooDeeply("This line"), null);
  }
  if (structure === "values") {
    return faulty(
      "invalid_json_line",
      `This line has more than ${MAX_VALUES} array elements and object members.`,
      null,
    );
  }
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes));
  } catch {
    return faulty("invalid_json_line", "This line is not parseable as valid JSON.", null);
  }
  try {
    const line = parse(batchLine, value);
    if (line.url === endpoint) return { no, line };
    return faulty("mismatched_url", `The URL of this line is not the batch's endpoint, ${endpoint}.`, "url");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { code, message, param } = error.toFields();
    return faulty(code ?? "invalid_request", message, param ?? null);
  }
}

/** The findings about a whole file: its number of lines, the model of the first one, and its faults. */
export interface Checked {
  total: number;
  model: string | undefined;
  faults: BatchFault[];
}

/** Checks a file to its end, or until the maximum of reported faults. `giveWay` is called for each line with its length in bytes. */
export async function checkBatch(
  lines: AsyncIterable<ReadLine & { bytes: number }>,
  giveWay: (bytes: number) => Promise<void>,
): Promise<Checked> {
  const faults: BatchFault[] = [];
  const ids = new Set<string>();
  let total = 0;
  let model: string | undefined;
  for await (const { no, line, fault, bytes } of lines) {
    total = no;
    if (fault) faults.push(fault);
    else {
      const { custom_id: id, body } = line;
      if (ids.has(id)) {
        const message = "The custom_id of this line is that of an earlier one.";
        faults.push({ code: "duplicate_custom_id", message, param: "custom_id", line: no });
      }
      ids.add(id);
      if (no === 1 && typeof body.model === "string") model = body.model;
    }
    if (no > MAX_BATCH_LINES) {
      const message = `A batch has at most ${MAX_BATCH_LINES} requests.`;
      faults.push({ code: "too_many_requests", message, param: "input_file_id", line: null });
    }
    if (faults.length >= MAX_FAULTS || no > MAX_BATCH_LINES) break;
    await giveWay(bytes);
  }
  if (total === 0)
    faults.push({ code: "empty_file", message: "The file has no requests.", param: "input_file_id", line: null });
  return { total, model, faults };
}
