import type { Variables } from "../../../config/index.ts";
import type { QuotaBinding } from "../../limits/run-quota.ts";
import type { FileObjects } from "../files/bindings.ts";

/** The objects of vector stores (`VectorStore`), each named tenant + key. */
export interface StoreObjects {
  VECTOR_STORES: DurableObjectNamespace;
}

/** The environment of a store. */
export type StoreEnv = Variables & FileObjects & QuotaBinding;
