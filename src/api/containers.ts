import type { FormPart } from "@responses-edge/bounded-io/multipart";
import { containerExpired, invalidRequest } from "@responses-edge/responses-api/errors";
import { fileId } from "@responses-edge/responses-api/ids";
import {
  addContainerFileBody,
  type ContainerFileObject,
  type ContainerObject,
  checkMemory,
  containerFileForm,
  createContainerBody,
  IDLE_MINUTES,
} from "@responses-edge/responses-api/platform/containers";
import { unixSeconds } from "@responses-edge/responses-api/response";
import { parse } from "@responses-edge/responses-api/validation-errors";
import { endContainer } from "../assembly/container-ends.ts";
import { CONTAINER_FILE_SECONDS, FILES_DIRECTORY } from "../contract/container-files.ts";
import { checkMayStore } from "../store/home/may-store.ts";
import type { ContainerFile, ContainerQuery, ContainerRecord } from "../store/tenant/files/container-table.ts";
import { filesOfContainer } from "./container-references.ts";
import { receiveFile } from "./files.ts";
import type { Caller } from "./transport.ts";

/**
 * Containers. Every function that takes an id throws the 404 of a container, or of a file of it, that is unknown, deleted or another
 * tenant's.
 */

/** A page, as it is shown. */
interface Page<Shown> {
  object: "list";
  data: Shown[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
}

/** Makes a container. The tool server gets its files, and a session for it, with the first program. */
export async function createContainer(caller: Caller, sent: unknown): Promise<ContainerObject> {
  checkMayStore(caller.identity);
  const { tools } = caller.config;
  const { name, file_ids, expires_after: after, memory_limit: memory } = parse(createContainerBody, sent);
  if (!tools.servers.python || !tools.offeredKinds.has("python")) {
    const message =
      "This server has no containers: it has no tool server for 'python' (TOOL_SERVERS), or does not offer it.";
    throw invalidRequest(null, message, "unsupported_parameter");
  }
  if (memory != null) checkMemory(memory, tools.memoryLimits, "memory_limit");
  const given = file_ids?.length ? await filesOfContainer(caller, file_ids, "file_ids") : [];
  const minutes = after?.minutes ?? IDLE_MINUTES.byDefault;
  const about = { name, minutes, memory: memory ?? null };
  return shownContainer(await caller.files.containers.create(about, given));
}

export async function listContainers({ files }: Caller, query: ContainerQuery): Promise<Page<ContainerObject>> {
  const { data, hasMore } = await files.containers.list(query);
  return pageOf(data.map(shownContainer), hasMore);
}

export async function retrieveContainer({ files }: Caller, id: string): Promise<ContainerObject> {
  return shownContainer(await files.containers.find(id));
}

/** Deletes a container, the files that were made for it, and its session on the tool server. */
export async function deleteContainer(caller: Caller, id: string): Promise<void> {
  await caller.files.containers.remove(id);
  caller.waitUntil(endContainer(caller.config.tools, caller.tenant, id));
}

/** Uploads a file into a container: its next program finds it. Throws the 400 of a container that has expired. */
export async function uploadContainerFile(
  caller: Caller,
  id: string,
  form: AsyncIterable<FormPart>,
): Promise<ContainerFileObject> {
  await requireRunning(caller, id);
  const { key } = await receiveFile(caller, form, (fields, { filename }) => {
    parse(containerFileForm, fields);
    const createdAt = unixSeconds();
    const container = { id, path: filename, source: "user" } as const;
    return { purpose: "user_data", createdAt, expiresAt: createdAt + CONTAINER_FILE_SECONDS, container };
  });
  return shownFile(id, await caller.files.containers.file(id, fileId(key)));
}

/** Gives a container an uploaded file. Throws the 404 of the file, and the 400 of a container that has expired. */
export async function addContainerFile(caller: Caller, id: string, sent: unknown): Promise<ContainerFileObject> {
  const { file_id } = parse(addContainerFileBody, sent);
  await requireRunning(caller, id);
  const [record] = await filesOfContainer(caller, [file_id], "file_id");
  if (!record) throw new TypeError("A file has no record.");
  return shownFile(id, await caller.files.containers.give(id, record));
}

export async function listContainerFiles(
  { files }: Caller,
  id: string,
  query: ContainerQuery,
): Promise<Page<ContainerFileObject>> {
  await files.containers.find(id);
  const { data, hasMore } = await files.containers.files(id, query);
  return pageOf(
    data.map((file) => shownFile(id, file)),
    hasMore,
  );
}

/** A file of a container, also of one that has expired, as long as the file is kept. */
export async function retrieveContainerFile({ files }: Caller, id: string, file: string): Promise<ContainerFileObject> {
  return shownFile(id, await files.containers.file(id, file));
}

/** Deletes a file from a container. One that was uploaded before stays among the files. */
export async function deleteContainerFile({ files }: Caller, id: string, file: string): Promise<void> {
  await files.containers.find(id);
  await files.containers.removeFile(id, file);
}

async function requireRunning({ files, identity }: Caller, id: string): Promise<void> {
  checkMayStore(identity);
  const { isExpired } = await files.containers.find(id);
  if (isExpired) throw containerExpired();
}

function shownContainer({
  id,
  name,
  createdAt,
  activeAt,
  minutes,
  memory,
  isExpired,
}: ContainerRecord): ContainerObject {
  return {
    id,
    object: "container",
    created_at: createdAt,
    last_active_at: activeAt,
    name,
    status: isExpired ? "expired" : "running",
    expires_after: { anchor: "last_active_at", minutes },
    ...(memory && { memory_limit: memory }),
  };
}

function shownFile(id: string, { record, path, source, createdAt }: ContainerFile): ContainerFileObject {
  return {
    id: fileId(record.key),
    object: "container.file",
    container_id: id,
    bytes: record.bytes,
    created_at: createdAt,
    path: `${FILES_DIRECTORY}/${path}`,
    source,
  };
}

function pageOf<Shown extends { id: string }>(data: Shown[], hasMore: boolean): Page<Shown> {
  const [firstId, lastId] = [data[0]?.id ?? null, data.at(-1)?.id ?? null];
  return { object: "list", data, first_id: firstId, last_id: lastId, has_more: hasMore };
}
