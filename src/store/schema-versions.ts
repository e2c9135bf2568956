/**
 * The version of the tables that the objects of each class write today, by the class's name; what `Board` keeps heals itself. Programs
 * beside the Worker read it too: they must not lay hands on what a newer version has written.
 */
export const SCHEMA_VERSIONS = {
  Home: 8,
  KeyDirectory: 2,
  Quota: 3,
  FileDirectory: 3,
  FileBytes: 1,
  VectorStore: 1,
  Webhooks: 1,
  Batches: 2,
  ResponseIndex: 1,
} as const;
