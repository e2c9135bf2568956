import {
  ApiError,
  containerExpired,
  containerNotFound,
  fileNotFound,
  notFound,
} from "@responses-edge/responses-api/errors";
import { fileId, isContainerId, newContainerId, parseFileId } from "@responses-edge/responses-api/ids";
import { loadConfig } from "../../../config/index.ts";
import type { ContainerUse, PendingFile } from "../../../contract/container-files.ts";
import type { Env } from "../../../env.ts";
import type { Stub } from "../../objects/objects.ts";
import { unwrap } from "../../objects/rpc.ts";
import type { ContainerFile, ContainerQuery, ContainerRecord, NewContainer } from "./container-table.ts";
import type { FileRecord } from "./file-table.ts";

/**
 * A tenant's containers, as the Worker and objects see them. Functions that take an id throw the 404 of a container that is unknown,
 * deleted or another tenant's.
 */
export class ContainerClient {
  readonly #tenant: string;
  readonly #objects: Env;

  constructor(objects: Env, tenant: string) {
    this.#tenant = tenant;
    this.#objects = objects;
  }

  /** Makes a container with these files. Throws the 400 of a tenant that has as many as it may. */
  async create(about: Omit<NewContainer, "id">, given: readonly FileRecord[]): Promise<ContainerRecord> {
    const id = newContainerId();
    await this.#make({ ...about, id }, given);
    return await this.find(id);
  }

  async find(id: string): Promise<ContainerRecord> {
    const found = isContainerId(id) ? await this.#directory.container(id) : null;
    if (!found) throw containerNotFound(id);
    return found;
  }

  /** Throws the 404 of a container that is unknown, and the 400 of one that has expired, as errors of the field `param`. */
  async check(id: string, param: string): Promise<void> {
    const found = isContainerId(id) ? await this.#directory.container(id) : null;
    if (!found) throw containerNotFound(id, param);
    if (found.isExpired) throw containerExpired(param);
  }

  /** Tells whether a container can be used now. */
  async isRunning(id: string): Promise<boolean> {
    const found = isContainerId(id) ? await this.#directory.container(id) : null;
    return found !== null && !found.isExpired;
  }

  async list(query: ContainerQuery): Promise<{ data: ContainerRecord[]; hasMore: boolean }> {
    const page = await this.#directory.containers(query);
    if (page) return page;
    throw notFound("Container", query.after ?? "", "after", { status: 400 });
  }

  async remove(id: string): Promise<void> {
    if (!isContainerId(id) || !unwrap(await this.#directory.removeContainer(id))) throw containerNotFound(id);
  }

  /**
   * Notes that a container is used, and gives it further files. With `made` it is made if it does not exist: that of a turn. Throws as
   * `create` does.
   */
  async use(
    id: string,
    made: Omit<NewContainer, "id"> | undefined,
    given: readonly FileRecord[],
  ): Promise<ContainerUse> {
    if (made) await this.#make({ ...made, id }, given);
    return unwrap(await this.#directory.useContainer(id));
  }

  async settle(id: string, pending: readonly PendingFile[]): Promise<void> {
    unwrap(await this.#directory.settleContainer(id, pending));
  }

  async touch(id: string): Promise<void> {
    await this.#directory.touchContainer(id);
  }

  async lose(id: string): Promise<void> {
    await this.#directory.loseContainer(id);
  }

  /** Gives a container an uploaded file. */
  async give(id: string, record: FileRecord): Promise<ContainerFile> {
    unwrap(await this.#directory.giveToContainer(id, [givenOf(record)]));
    return await this.file(id, fileId(record.key));
  }

  /** Throws the 404 of a file that the container does not have. */
  async file(id: string, file: string): Promise<ContainerFile> {
    const key = parseFileId(file);
    const found = key === undefined ? null : await this.#directory.containerFile(id, key);
    if (!found) throw fileNotFound(file);
    return found;
  }

  async files(id: string, { after, ...query }: ContainerQuery): Promise<{ data: ContainerFile[]; hasMore: boolean }> {
    const key = after === undefined ? undefined : (parseFileId(after) ?? "");
    const page = await this.#directory.containerFiles(id, { ...query, after: key });
    if (page) return page;
    throw notFound("File", after ?? "", "after", { status: 400 });
  }

  /** Throws as `file` does. */
  async removeFile(id: string, file: string): Promise<void> {
    const key = parseFileId(file);
    if (key === undefined || !unwrap(await this.#directory.removeContainerFile(id, key))) throw fileNotFound(file);
  }

  /** Removes at most `limit` containers. Gives their ids. */
  async removeSome(limit: number): Promise<string[]> {
    return unwrap(await this.#directory.removeSomeContainers(limit));
  }

  async #make(made: NewContainer, given: readonly FileRecord[]): Promise<void> {
    const { containersPerTenant: max } = loadConfig(this.#objects).files;
    if (unwrap(await this.#directory.createContainer(made, given.map(givenOf), max))) return;
    const message = `You already have ${max} containers, the maximum (CONTAINERS_PER_TENANT). Delete some, or wait until they expire.`;
    throw new ApiError({ status: 400, message, param: null, code: "too_many_containers" });
  }

  get #directory(): Stub<"FILE_DIRECTORIES"> {
    return this.#objects.FILE_DIRECTORIES.getByName(this.#tenant);
  }
}

const givenOf = ({ key, filename }: FileRecord) => ({ key, id: fileId(key), filename });
