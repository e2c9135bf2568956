import { MAX_PART_BYTES } from "@responses-edge/responses-api/platform/files";
import type { Context } from "hono";
import { createFile, deleteFile, fileContent, listFiles, retrieveFile } from "../api/files.ts";
import { filesQuery } from "../api/queries.ts";
import { addUploadPart, cancelUpload, completeUpload, createUpload } from "../api/uploads.ts";
import type { AppEnv } from "./app-env.ts";
import { fileParts } from "./body.ts";
import { callerOf, jsonBody } from "./caller.ts";
import { endpoint } from "./endpoint.ts";
import { byTenantIn, json, ok } from "./openapi/operation.ts";

const byTenant = byTenantIn("Files");

/** Answers with the bytes of a file. */
export async function sendContent(context: Context<AppEnv>, id: string): Promise<Response> {
  const { body, bytes, filename } = await fileContent(callerOf(context), id);
  return context.body(body, 200, {
    "content-type": "application/octet-stream",
    "content-length": String(bytes),
    // A download: a page that opened it here would run as one of this server's.
    "content-disposition": `attachment; filename*=utf-8''${encodeURIComponent(filename.toWellFormed())}`,
    "x-content-type-options": "nosniff",
  });
}

export const files = [
  endpoint("POST /v1/files", {
    summary:
      "upload a file: a form with `file`, `purpose`, `expires_after[anchor]`, `expires_after[seconds]` ([docs/files.md](docs/files.md))",
    operation: byTenant("createFile", "request", {
      body: { name: "CreateFile", type: "multipart/form-data" },
      answers: ok("File"),
      errors: [409],
    }),
    handle: async (context) => {
      const { maxFileBytes } = context.get("config").files;
      return context.json(await createFile(callerOf(context), fileParts(context.req.raw, maxFileBytes)));
    },
  }),
  endpoint("GET /v1/files", {
    summary: "list: `purpose`, `limit` 1–10,000 (10,000), `order` `desc`\\|`asc`, `after`",
    operation: byTenant("listFiles", "read", { answers: ok("FileList") }),
    query: filesQuery,
    handle: async (context, query) => context.json(await listFiles(callerOf(context), query)),
  }),
  endpoint("GET /v1/files/:id", {
    summary: "retrieve",
    operation: byTenant("retrieveFile", "read", { answers: ok("File") }),
    handle: async (context) => context.json(await retrieveFile(callerOf(context), context.req.param("id"))),
  }),
  endpoint("GET /v1/files/:id/content", {
    summary: "its bytes",
    operation: byTenant("readFileContent", "read", {
      answers: { 200: { "application/octet-stream": "FileContent" } },
    }),
    handle: (context) => sendContent(context, context.req.param("id")),
  }),
  endpoint("DELETE /v1/files/:id", {
    summary: "delete it, also from its vector stores",
    operation: byTenant("deleteFile", "read", { answers: ok("DeletedFile") }),
    handle: async (context) => {
      const id = context.req.param("id");
      await deleteFile(callerOf(context), id);
      return context.json({ id, object: "file", deleted: true });
    },
  }),
  endpoint("POST /v1/uploads", {
    summary: "begin an upload of a file in parts: `bytes`, `filename`, `mime_type`, `purpose`, `expires_after`",
    operation: byTenant("createUpload", "request", { body: json("CreateUpload"), answers: ok("Upload") }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await createUpload(callerOf(context), body));
    },
  }),
  endpoint("POST /v1/uploads/:id/parts", {
    summary: "add a part of at most 64 MiB, a form with `data`; parts may be sent in parallel",
    operation: byTenant("addUploadPart", "request", {
      body: { name: "AddUploadPart", type: "multipart/form-data" },
      answers: ok("UploadPart"),
      errors: [409],
    }),
    handle: async (context) => {
      const parts = fileParts(context.req.raw, MAX_PART_BYTES);
      return context.json(await addUploadPart(callerOf(context), context.req.param("id"), parts));
    },
  }),
  endpoint("POST /v1/uploads/:id/complete", {
    summary: "make a file of parts: `part_ids` in their order, `md5`",
    operation: byTenant("completeUpload", "request", { body: json("CompleteUpload"), answers: ok("Upload") }),
    handle: async (context) => {
      const body = await jsonBody(context);
      return context.json(await completeUpload(callerOf(context), context.req.param("id"), body));
    },
  }),
  endpoint("POST /v1/uploads/:id/cancel", {
    summary: "cancel it",
    operation: byTenant("cancelUpload", "read", { answers: ok("Upload"), errors: [400] }),
    handle: async (context) => context.json(await cancelUpload(callerOf(context), context.req.param("id"))),
  }),
];
