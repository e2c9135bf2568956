import { storeFilesQuery, storesQuery } from "../api/queries.ts";
import {
  addVectorStoreFile,
  cancelFileBatch,
  createFileBatch,
  createVectorStore,
  deleteVectorStore,
  listVectorStoreFiles,
  listVectorStores,
  reindexVectorStore,
  removeVectorStoreFile,
  retrieveFileBatch,
  retrieveVectorStore,
  retrieveVectorStoreFile,
  searchVectorStore,
  updateVectorStore,
  updateVectorStoreFile,
  vectorStoreFileContent,
} from "../api/vector-stores.ts";
import { callerOf, jsonBody } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byTenantIn, json, ok } from "./openapi/operation.ts";

const byTenant = byTenantIn("Vector stores");

export const vectorStores = [
  endpoint("POST /v1/vector_stores", {
    summary:
      "create a vector store: `name`, `description`, `file_ids` (≤ 500), `chunking_strategy`, `expires_after`, `metadata` ([docs/files.md](docs/files.md#vector-stores))",
    operation: byTenant("createVectorStore", "request", {
      body: { ...json("CreateVectorStore"), isOptional: true },
      answers: ok("VectorStore"),
    }),
    handle: async (context) => {
      const { raw } = context.req;
      const isEmpty = raw.body === null || raw.headers.get("content-length") === "0";
      const body = isEmpty ? {} : await jsonBody(context);
      return context.json(await createVectorStore(callerOf(context), body));
    },
  }),
  endpoint("GET /v1/vector_stores", {
    summary: "list: `limit` 1–100 (20), `order` `desc`\\|`asc`, `after`, `before`",
    operation: byTenant("listVectorStores", "read", { answers: ok("VectorStoreList") }),
    query: storesQuery,
    handle: async (context, query) => context.json(await listVectorStores(callerOf(context), query)),
  }),
  endpoint("GET /v1/vector_stores/:id", {
    summary: "retrieve",
    operation: byTenant("retrieveVectorStore", "read", { answers: ok("VectorStore") }),
    handle: async (context) => context.json(await retrieveVectorStore(callerOf(context), context.req.param("id"))),
  }),
  endpoint("POST /v1/vector_stores/:id", {
    summary: "change its `name`, `metadata`, `expires_after`",
    operation: byTenant("updateVectorStore", "request", {
      body: json("UpdateVectorStore"),
      answers: ok("VectorStore"),
    }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await updateVectorStore(callerOf(context), context.req.param("id"), body));
    },
  }),
  endpoint("DELETE /v1/vector_stores/:id", {
    summary: "delete; the files themselves stay",
    operation: byTenant("deleteVectorStore", "read", { answers: ok("DeletedVectorStore") }),
    handle: async (context) => {
      const id = context.req.param("id");
      await deleteVectorStore(callerOf(context), id);
      return context.json({ id, object: "vector_store.deleted", deleted: true });
    },
  }),
  endpoint("POST /v1/vector_stores/:id/search", {
    summary: "search: `query`, `filters`, `max_num_results` 1–50 (10), `ranking_options`, `include` `explanation`",
    operation: byTenant("searchVectorStore", "request", {
      body: json("SearchVectorStore"),
      answers: ok("VectorStoreSearchResults"),
      errors: [409, 429],
    }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await searchVectorStore(callerOf(context), context.req.param("id"), body));
    },
  }),
  endpoint("POST /v1/vector_stores/:id/reindex", {
    summary: "read, cut and embed all its files again. Not OpenAI's",
    operation: byTenant("reindexVectorStore", "request", { answers: ok("VectorStore") }),
    handle: async (context) => context.json(await reindexVectorStore(callerOf(context), context.req.param("id"))),
  }),
  endpoint("POST /v1/vector_stores/:id/files", {
    summary: "add a file: `file_id`, `attributes`, `chunking_strategy`",
    operation: byTenant("createVectorStoreFile", "request", {
      body: json("CreateVectorStoreFile"),
      answers: ok("VectorStoreFile"),
    }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await addVectorStoreFile(callerOf(context), context.req.param("id"), body));
    },
  }),
  endpoint("GET /v1/vector_stores/:id/files", {
    summary: "its files: `filter` by status, `limit` 1–100 (20), `order`, `after`, `before`",
    operation: byTenant("listVectorStoreFiles", "read", { answers: ok("VectorStoreFileList") }),
    query: storeFilesQuery,
    handle: async (context, query) =>
      context.json(await listVectorStoreFiles(callerOf(context), context.req.param("id"), query)),
  }),
  endpoint("GET /v1/vector_stores/:id/files/:file", {
    summary: "one of them, with its `status`",
    operation: byTenant("retrieveVectorStoreFile", "read", { answers: ok("VectorStoreFile") }),
    handle: async (context) => {
      const { id, file } = context.req.param();
      return context.json(await retrieveVectorStoreFile(callerOf(context), id, file));
    },
  }),
  endpoint("POST /v1/vector_stores/:id/files/:file", {
    summary: "change its `attributes`",
    operation: byTenant("updateVectorStoreFile", "request", {
      body: json("UpdateVectorStoreFile"),
      answers: ok("VectorStoreFile"),
    }),
    handle: async (context) => {
      const { id, file } = context.req.param();
      const body = await jsonBody(context);
      return context.json(await updateVectorStoreFile(callerOf(context), id, file, body));
    },
  }),
  endpoint("DELETE /v1/vector_stores/:id/files/:file", {
    summary: "remove it; the file itself stays",
    operation: byTenant("deleteVectorStoreFile", "read", { answers: ok("DeletedVectorStoreFile") }),
    handle: async (context) => {
      const { id, file } = context.req.param();
      await removeVectorStoreFile(callerOf(context), id, file);
      return context.json({ id: file, object: "vector_store.file.deleted", deleted: true });
    },
  }),
  endpoint("GET /v1/vector_stores/:id/files/:file/content", {
    summary: "the chunks of its text",
    operation: byTenant("readVectorStoreFileContent", "read", { answers: ok("VectorStoreFileContent") }),
    handle: async (context) => {
      const { id, file } = context.req.param();
      return context.json(await vectorStoreFileContent(callerOf(context), id, file));
    },
  }),
  endpoint("POST /v1/vector_stores/:id/file_batches", {
    summary: "add files (≤ 2,000): `file_ids`, `attributes`, `chunking_strategy`; or `files`, each with its own",
    operation: byTenant("createVectorStoreFileBatch", "request", {
      body: json("CreateVectorStoreFileBatch"),
      answers: ok("VectorStoreFileBatch"),
    }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await createFileBatch(callerOf(context), context.req.param("id"), body));
    },
  }),
  endpoint("GET /v1/vector_stores/:id/file_batches/:batch", {
    summary: "a batch, with its `status` and `file_counts`",
    operation: byTenant("retrieveVectorStoreFileBatch", "read", { answers: ok("VectorStoreFileBatch") }),
    handle: async (context) => {
      const { id, batch } = context.req.param();
      return context.json(await retrieveFileBatch(callerOf(context), id, batch));
    },
  }),
  endpoint("POST /v1/vector_stores/:id/file_batches/:batch/cancel", {
    summary: "cancel those of its files that are not searchable yet",
    operation: byTenant("cancelVectorStoreFileBatch", "request", { answers: ok("VectorStoreFileBatch") }),
    handle: async (context) => {
      const { id, batch } = context.req.param();
      return context.json(await cancelFileBatch(callerOf(context), id, batch));
    },
  }),
  endpoint("GET /v1/vector_stores/:id/file_batches/:batch/files", {
    summary: "its files, as in the list of the store",
    operation: byTenant("listFilesInVectorStoreBatch", "read", { answers: ok("VectorStoreFileList") }),
    query: storeFilesQuery,
    handle: async (context, query) => {
      const { id, batch } = context.req.param();
      return context.json(await listVectorStoreFiles(callerOf(context), id, { ...query, batch }));
    },
  }),
];
