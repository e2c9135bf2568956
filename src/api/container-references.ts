import { ApiError, invalidRequest } from "@responses-edge/responses-api/errors";
import type { Tool } from "@responses-edge/responses-api/tools";
import { type GivenFile, MAX_CONTAINER_BYTES } from "../contract/container-files.ts";
import type { FileRecord } from "../store/tenant/files/file-table.ts";
import type { Caller } from "./transport.ts";

/** The files, vector stores and containers that tools of a request name. */

/**
 * The files that a request gives to its container; undefined if it gives none. Throws the 404 of a file, a vector store or a container that a
 * tool names and that does not exist, the 400 of a container that has expired, and the 400 of more bytes than a container takes.
 */
export async function filesOfTools(caller: Caller, tools: readonly Tool[]): Promise<GivenFile[] | undefined> {
  const checks: Promise<unknown>[] = [];
  let container: { ids: readonly string[]; field: string } | undefined;
  for (const [index, tool] of tools.entries()) {
    if (tool.type === "code_interpreter" && typeof tool.container === "string") {
      checks.push(caller.files.containers.check(tool.container, `tools[${index}].container`));
    } else if (tool.type === "code_interpreter" && typeof tool.container !== "string" && tool.container.file_ids) {
      container ??= { ids: tool.container.file_ids, field: `tools[${index}].container.file_ids` };
    }
    for (const id of tool.type === "file_search" ? tool.vector_store_ids : []) {
      const facts = caller.stores.ask(id, (store) => store.facts());
      checks.push(namedBy(`tools[${index}].vector_store_ids`, facts));
    }
  }
  const [given] = await Promise.all([container && filesOfContainer(caller, container.ids, container.field), ...checks]);
  return given?.map(({ filename }, at) => ({ id: container?.ids[at] ?? "", filename }));
}

/** The records of files that a request gives to a container. Throws as `filesOfTools`; `field` has the ids, or the only one. */
export async function filesOfContainer(
  { files }: Caller,
  ids: readonly string[],
  field: string,
): Promise<FileRecord[]> {
  const isList = field.endsWith("s");
  const records = await Promise.all(ids.map((id, at) => namedBy(isList ? `${field}[${at}]` : field, files.record(id))));
  const bytes = records.reduce((sum, record) => sum + record.bytes, 0);
  if (bytes > MAX_CONTAINER_BYTES) {
    const message = `The files have ${bytes} bytes together; a container takes ${MAX_CONTAINER_BYTES}.`;
    throw invalidRequest(field, message, "invalid_value");
  }
  return records;
}

/** Gives the looked-up value. An error gets the name of the field that asked for it. */
async function namedBy<Value>(param: string, lookedUp: Promise<Value>): Promise<Value> {
  try {
    return await lookedUp;
  } catch (error) {
    throw error instanceof ApiError ? new ApiError({ ...error.toFields(), param }) : error;
  }
}
