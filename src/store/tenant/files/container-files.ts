import { fileId } from "@responses-edge/responses-api/ids";
import { IDLE_MINUTES } from "@responses-edge/responses-api/platform/containers";
import { MAX_FILENAME_LENGTH } from "@responses-edge/responses-api/platform/files";
import { unixSeconds } from "@responses-edge/responses-api/response";
import type { Config } from "../../../config/index.ts";
import { CONTAINER_FILE_SECONDS, type ContainerFiles } from "../../../contract/container-files.ts";
import type { Identity } from "../../../contract/grants.ts";
import { checkMayStore } from "../../home/may-store.ts";
import type { FileClient } from "./file-client.ts";
import { fileLimitsOf } from "./file-limits.ts";

/** The name of a container that a turn has made. */
const OWN_NAME = "auto";

/** The owner of a container. */
export interface ContainerOwner {
  tenant: string;
  identity: Identity;
  config: Config;
  files: FileClient;
  waitUntil: (promise: Promise<unknown>) => void;
}

/** A tenant's files for the containers of its turns, within the limits of the key that has begun the turn. */
export function containerFiles({ tenant, identity, config, files, waitUntil }: ContainerOwner): ContainerFiles {
  return {
    async read(id) {
      const { record, body } = await files.content(id);
      return { filename: record.filename, body };
    },
    isRunning: (container) => files.containers.isRunning(container),
    async use(container, own) {
      const given = await Promise.all((own?.given ?? []).map((id) => files.record(id)));
      const made = own && { name: OWN_NAME, minutes: IDLE_MINUTES.byDefault, memory: own.memory };
      return await files.containers.use(container, made, given);
    },
    settle: (container, told) => files.containers.settle(container, told),
    touch: (container) => files.containers.touch(container),
    lose: (container) => files.containers.lose(container),
    async keep({ container, path, bytes, mimeType = null, seconds = CONTAINER_FILE_SECONDS }) {
      checkMayStore(identity);
      const limits = fileLimitsOf(identity, config);
      const { maxFileBytes: maxBytes } = config.files;
      using file = await files.receive(identity.keyId, { tenant, config, limits, field: "file", maxBytes });
      try {
        for await (const piece of bytes) await file.write(piece);
        const createdAt = unixSeconds();
        const filename = (path.split("/").at(-1) ?? path).slice(0, MAX_FILENAME_LENGTH);
        const place = container === undefined ? {} : { container: { id: container, path } };
        const about = { filename, mimeType, purpose: "assistants_output", ...place } as const;
        const { key } = await files.commit(file, { ...about, createdAt, expiresAt: createdAt + seconds }, limits);
        return { id: fileId(key), filename, path };
      } catch (error) {
        waitUntil(files.discard(file).catch(() => {}));
        throw error;
      }
    },
  };
}
