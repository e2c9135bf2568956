import { ApiError } from "@responses-edge/responses-api/errors";
import type { ServerAttempt } from "@responses-edge/turn/contract/engine";
import { answeredStatus, type Body } from "./model-server.ts";

/** One request to one of the model servers. */

/** Makes a request, and reports it. Rejects as the request does. */
export async function reported(
  onAttempt: ((call: ServerAttempt) => void) | undefined,
  of: Pick<ServerAttempt, "server" | "path" | "attempt">,
  ask: () => Promise<Response>,
): Promise<Response> {
  const call = { ...of, sentAt: Date.now() };
  try {
    const response = await ask();
    onAttempt?.({ ...call, status: response.status, fault: undefined, answeredAt: Date.now() });
    return response;
  } catch (error) {
    const known = error instanceof ApiError ? error : undefined;
    const status = known && answeredStatus(known);
    onAttempt?.({ ...call, status, fault: known?.code ?? "aborted", answeredAt: Date.now() });
    throw error;
  }
}

/** A body with the server's own name of the model. A form keeps its name. */
export function renamed(body: Body, model: string | undefined, there: string): Body {
  if (typeof body !== "string") return body;
  const beginning = `{"model":${JSON.stringify(model)}`;
  if (body.startsWith(beginning)) return `{"model":${JSON.stringify(there)}${body.slice(beginning.length)}`;
  return JSON.stringify({ ...(JSON.parse(body) as object), model: there });
}
