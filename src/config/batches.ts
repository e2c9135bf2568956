import { integer } from "./values.ts";
import { type Section, variable } from "./variable.ts";

/** Batches: many requests that are answered when there is capacity. */

export const batches = {
  title: "Batches",
  variables: {
    concurrency: variable(
      "BATCH_CONCURRENCY",
      integer(16, 1, 1_000),
      "How many requests of a tenant's batches run at a time ([batches.md](../batches.md)).",
    ),
    maxActive: variable(
      "BATCHES_PER_TENANT",
      integer(32, 1, 1_000),
      "How many batches of a tenant may be in progress; beyond it: 429.",
    ),
  },
} satisfies Section;
