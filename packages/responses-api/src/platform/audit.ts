/** The actions of the audit log, by OpenAI's names where it has one. A new action is a line here. */
export const AUDIT_TYPES = [
  "api_key.created",
  "api_key.updated",
  "api_key.rotated",
  "api_key.deleted",
  "rate_limit.updated",
  "rate_limit.deleted",
  "configuration.updated",
  "response.cancelled",
  "response.deleted",
  "conversation.deleted",
  "file.deleted",
  "vector_store.deleted",
  "batch.created",
  "batch.cancelled",
  "webhook_endpoint.created",
  "webhook_endpoint.updated",
  "webhook_endpoint.secret_rotated",
  "webhook_endpoint.deleted",
  "tenant.exported",
  "tenant.imported",
  "tenant.erased",
] as const;

export type AuditType = (typeof AUDIT_TYPES)[number];
