import { list } from "@responses-edge/bounded-io/schemas/collections";
import { z } from "zod";
import { invalidRequest } from "../errors.ts";
import { MAX_ID_LENGTH } from "../ids.ts";
import { once } from "../items/shapes.ts";
import { refuse } from "../tool-fields.ts";

/** Containers in the API: handles of the state that a tool server keeps for `code_interpreter`. */

/** Files that one request may give to a container: OpenAI's limit. */
export const MAX_GIVEN_FILES = 50;

/** How long a container lives without use, in minutes: OpenAI's default, and the longest time. */
export const IDLE_MINUTES = { byDefault: 20, longest: 1_440 };

/** The sizes of OpenAI's containers. */
export const MEMORY_LIMITS = ["1g", "4g", "16g", "64g"] as const;
export type MemoryLimit = (typeof MEMORY_LIMITS)[number];

/** Throws the 400 of a memory limit that the tool server cannot hold, by the name of its field. */
export function checkMemory(wanted: MemoryLimit, held: readonly MemoryLimit[], param: string): void {
  if (held.includes(wanted)) return;
  const message = `'memory_limit' of '${wanted}' is not supported by this server: its tool server cannot hold it (CONTAINER_MEMORY_LIMITS).`;
  throw invalidRequest(param, message, "unsupported_parameter");
}

/** Every file that a request gives to a container. */
export const givenFileIds = () => list(z.string().min(1).max(MAX_ID_LENGTH), { max: MAX_GIVEN_FILES });

export const createContainerBody = z
  .object({
    name: z.string().min(1).max(256),
    file_ids: givenFileIds().nullish(),
    expires_after: z
      .object({ anchor: z.literal("last_active_at"), minutes: z.int().min(1).max(IDLE_MINUTES.longest) })
      .nullish(),
    memory_limit: z.enum(MEMORY_LIMITS).nullish(),
    network_policy: z.unknown().optional(),
    skills: z.unknown().optional(),
  })
  .transform(({ network_policy, skills, ...body }, context) => {
    for (const [field, value] of Object.entries({ network_policy, skills })) {
      if (value == null) continue;
      refuse(context, [field], `'${field}' is not supported by this server: its operator sets what a container may.`);
    }
    return body;
  });

/** The body that adds an uploaded file to a container. */
export const addContainerFileBody = z.object({ file_id: z.string().min(1).max(MAX_ID_LENGTH) });

/** A form that uploads a file into a container has no other field. */
export const containerFileForm = z.strictObject({});

export const containerObject = once(() =>
  z.object({
    id: z.string(),
    object: z.literal("container"),
    created_at: z.int().min(0).describe("Unix seconds."),
    last_active_at: z.int().min(0).describe("Unix seconds."),
    name: z.string(),
    status: z.enum(["running", "expired"]),
    expires_after: z.object({ anchor: z.literal("last_active_at"), minutes: z.int() }),
    memory_limit: z.enum(MEMORY_LIMITS).optional(),
  }),
);
export type ContainerObject = z.output<ReturnType<typeof containerObject>>;

/** A file of a container: `source` is `assistant` if a program has written it, else `user`. */
export const containerFileObject = once(() =>
  z.object({
    id: z.string(),
    object: z.literal("container.file"),
    container_id: z.string(),
    bytes: z.int().min(0),
    created_at: z.int().min(0).describe("Unix seconds."),
    path: z.string(),
    source: z.enum(["assistant", "user"]),
  }),
);
export type ContainerFileObject = z.output<ReturnType<typeof containerFileObject>>;
