/**
 * The present version of the tables of each class, by the class's name; the content of `Board` renews itself. Programs
 * beside the Worker read it, too: they must not touch data of a newer version.
 */
export const SCHEMA_VERSIONS = {
  Home: 8,
  KeyDirectory: 2,
  Quota: 4,
  FileDirectory: 3,
  FileBytes: 1,
  VectorStore: 1,
  Webhooks: 1,
  Batches: 2,
  ResponseIndex: 1,
} as const;
