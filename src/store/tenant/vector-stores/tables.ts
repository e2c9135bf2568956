import { TOKENIZER } from "@responses-edge/vector-search";
import { DEATHS_TABLE } from "../../objects/deaths.ts";
import { OUTBOX_TABLE } from "../../objects/outbox.ts";

/** The tables of a vector store. */
export const VECTOR_STORE_TABLES = [
  // The store itself, as JSON (`StoreRecord`).
  "CREATE TABLE store (body TEXT NOT NULL)",
  // Its files. A file that is added again is another row. `pending`: chunks that are not indexed yet. `is_read`: no
  // further chunks will come.
  `CREATE TABLE file (
      no INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, filename TEXT, status TEXT NOT NULL, error TEXT,
      bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, attributes TEXT, chunking TEXT NOT NULL, owner TEXT NOT NULL,
      pending INTEGER NOT NULL, is_read INTEGER NOT NULL)`,
  "CREATE INDEX file_status ON file (status, no)",
  "CREATE TABLE batch (id TEXT NOT NULL PRIMARY KEY, created_at INTEGER NOT NULL) WITHOUT ROWID",
  "CREATE TABLE batch_file (batch TEXT NOT NULL, file INTEGER NOT NULL, PRIMARY KEY (batch, file)) WITHOUT ROWID",
  "CREATE INDEX batch_of_file ON batch_file (file)",
  `CREATE TABLE chunk (
      id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER NOT NULL, seq INTEGER NOT NULL, page INTEGER, last_page INTEGER,
      is_indexed INTEGER NOT NULL, text TEXT NOT NULL, UNIQUE (file, seq))`,
  "CREATE INDEX chunk_pending ON chunk (id) WHERE is_indexed = 0",
  // Embeddings with eight bits a dimension, and their codes: of consecutively numbered chunks of one file.
  "CREATE TABLE vector (chunk INTEGER PRIMARY KEY, bytes BLOB NOT NULL)",
  "CREATE TABLE code (seq INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER NOT NULL, first INTEGER NOT NULL, bytes BLOB NOT NULL)",
  "CREATE INDEX code_of_file ON code (file, seq)",
  `CREATE VIRTUAL TABLE words USING fts5 (text, content = '', contentless_delete = 1, tokenize = "${TOKENIZER}")`,
  // Files whose chunks are to be removed.
  "CREATE TABLE removed (file INTEGER PRIMARY KEY)",
  OUTBOX_TABLE,
  // The keys are the numbers of rows of `file`.
  DEATHS_TABLE,
];
