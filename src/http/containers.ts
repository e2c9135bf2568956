import {
  addContainerFile,
  createContainer,
  deleteContainer,
  deleteContainerFile,
  listContainerFiles,
  listContainers,
  retrieveContainer,
  retrieveContainerFile,
  uploadContainerFile,
} from "../api/containers.ts";
import { containerFilesQuery, containersQuery } from "../api/queries.ts";
import { fileParts } from "./body.ts";
import { callerOf, jsonBody } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { sendContent } from "./files.ts";
import { byTenantIn, json, ok } from "./openapi/operation.ts";

const byTenant = byTenantIn("Containers");

export const containers = [
  endpoint("POST /v1/containers", {
    summary:
      "make a container for `code_interpreter`: `name`, `file_ids` (≤ 50), `expires_after`, `memory_limit` ([docs/tools.md](docs/tools.md#code))",
    operation: byTenant("createContainer", "request", {
      body: json("CreateContainer"),
      answers: ok("Container"),
      errors: [404],
    }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await createContainer(callerOf(context), body));
    },
  }),
  endpoint("GET /v1/containers", {
    summary: "list: `name`, `limit` 1–100 (20), `order` `desc`\\|`asc`, `after`",
    operation: byTenant("listContainers", "read", { answers: ok("ContainerList") }),
    query: containersQuery,
    handle: async (context, query) => context.json(await listContainers(callerOf(context), query)),
  }),
  endpoint("GET /v1/containers/:id", {
    summary: "retrieve, with its `status`: `running` or `expired`",
    operation: byTenant("retrieveContainer", "read", { answers: ok("Container") }),
    handle: async (context) => context.json(await retrieveContainer(callerOf(context), context.req.param("id"))),
  }),
  endpoint("DELETE /v1/containers/:id", {
    summary: "delete it, with the files that were made for it",
    operation: byTenant("deleteContainer", "read", { answers: ok("DeletedContainer") }),
    handle: async (context) => {
      const id = context.req.param("id");
      await deleteContainer(callerOf(context), id);
      return context.json({ id, object: "container.deleted", deleted: true });
    },
  }),
  endpoint("POST /v1/containers/:id/files", {
    summary: "add a file: a form with `file`, or JSON with `file_id`",
    operation: byTenant("createContainerFile", "request", {
      body: { name: "CreateContainerFile", type: "multipart/form-data", orJson: "AddContainerFile" },
      answers: ok("ContainerFile"),
      errors: [409],
    }),
    handle: async (context) => {
      const id = context.req.param("id");
      const type = context.req.header("content-type") ?? "";
      if (/^application\/json\b/i.test(type)) {
        const body = await jsonBody(context);
        return context.json(await addContainerFile(callerOf(context), id, body));
      }
      const { maxFileBytes } = context.get("config").files;
      const parts = fileParts(context.req.raw, maxFileBytes);
      return context.json(await uploadContainerFile(callerOf(context), id, parts));
    },
  }),
  endpoint("GET /v1/containers/:id/files", {
    summary: "its files: `limit` 1–100 (20), `order`, `after`",
    operation: byTenant("listContainerFiles", "read", { answers: ok("ContainerFileList") }),
    query: containerFilesQuery,
    handle: async (context, query) =>
      context.json(await listContainerFiles(callerOf(context), context.req.param("id"), query)),
  }),
  endpoint("GET /v1/containers/:id/files/:file", {
    summary: "one of them: `source` is `assistant` if a program has written it",
    operation: byTenant("retrieveContainerFile", "read", { answers: ok("ContainerFile") }),
    handle: async (context) => {
      const { id, file } = context.req.param();
      return context.json(await retrieveContainerFile(callerOf(context), id, file));
    },
  }),
  endpoint("GET /v1/containers/:id/files/:file/content", {
    summary: "its bytes",
    operation: byTenant("readContainerFileContent", "read", {
      answers: { 200: { "application/octet-stream": "FileContent" } },
    }),
    handle: async (context) => {
      const { id, file } = context.req.param();
      await retrieveContainerFile(callerOf(context), id, file);
      return sendContent(context, file);
    },
  }),
  endpoint("DELETE /v1/containers/:id/files/:file", {
    summary: "delete it from the container; a file that was given by its id stays in `/v1/files`",
    operation: byTenant("deleteContainerFile", "read", { answers: ok("DeletedContainerFile") }),
    handle: async (context) => {
      const { id, file } = context.req.param();
      await deleteContainerFile(callerOf(context), id, file);
      return context.json({ id: file, object: "container.file.deleted", deleted: true });
    },
  }),
];
