import { fileId } from "@responses-edge/responses-api/ids";
import { MAX_FILENAME_LENGTH } from "@responses-edge/responses-api/platform/files";
import { unixSeconds } from "@responses-edge/responses-api/response";
import type { Config } from "../../../config/index.ts";
import type { ContainerFiles } from "../../../contract/container-files.ts";
import type { Identity } from "../../../contract/grants.ts";
import { checkMayStore } from "../../home/may-store.ts";
import type { FileClient } from "./file-client.ts";
import { fileLimitsOf } from "./file-limits.ts";

/** How long a file is kept if nothing else is said: one that a program has written. */
const KEPT_SECONDS = 86_400;

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
    async keep({ container, path, bytes, mimeType = null, seconds = KEPT_SECONDS }) {
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
