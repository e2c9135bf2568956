import { VLLM_EXTRAS, type VllmExtra } from "../config/index.ts";
import type { CreateRequest } from "../protocol/create-request.ts";
import { invalidRequest } from "../protocol/errors.ts";

/**
 * vLLM's fields that reach beyond the request's own sampling: other tenants' turn in the queue, other hosts, the
 * template's and the processors' inner workings. The operator says which of them clients may send (VLLM_EXTRAS).
 */
export function checkVllmExtras(request: CreateRequest, allowed: ReadonlySet<VllmExtra>): void {
  for (const field of VLLM_EXTRAS) {
    if (request[field] == null || allowed.has(field)) continue;
    throw invalidRequest(
      field,
      `'${field}' is not open to clients of this server. Its operator can open it (VLLM_EXTRAS).`,
      "unsupported_parameter",
    );
  }
}
