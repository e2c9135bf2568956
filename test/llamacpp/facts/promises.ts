import { APIError } from "openai";
import type { Response, ResponseCustomToolCall } from "openai/resources/responses/responses";
import { expect } from "vitest";
import { type Fields, finalOf, type Subject } from "../../vllm/facts/subject.ts";
import type { Speech } from "../../vllm/speech.ts";

/** The two kinds of answers. */
export const WAYS = ["as JSON", "as a stream"] as const;
export type Way = (typeof WAYS)[number];

const UNFULFILLED: ReadonlySet<unknown> = new Set(["upstream_unreadable_answer", "upstream_disregarded_request"]);

/** The response to a model's output, in either way. A failed one has its status and its stored items. */
export async function responseOf(
  subject: Subject,
  way: Way,
  input: string | Speech,
  fields: Fields = {},
): Promise<Response> {
  try {
    return await answered(subject, way, input, fields);
  } catch (error) {
    // An answer that cannot be read, or is not what was asked for, is not completed.
    if (!(error instanceof APIError) || !UNFULFILLED.has(error.code)) throw error;
    return { status: "failed", error: { code: error.code, message: error.message }, output: [] } as unknown as Response;
  }
}

async function answered(
  { ask, stream, gateway }: Subject,
  way: Way,
  input: string | Speech,
  fields: Fields,
): Promise<Response> {
  if (way === "as JSON") return ask(input, fields);
  const events = await stream(input, fields);
  const last = events.at(-1);
  if (last?.type !== "error") return finalOf(events);
  const [first] = events;
  return gateway.openai.responses.retrieve(first && "response" in first ? first.response.id : "");
}

/** Fails unless the response has the requested output, or reports that it has not. */
export function expectKept(response: Response, isKept: (response: Response) => void): void {
  if (response.status === "completed") {
    isKept(response);
    return;
  }
  expect(["incomplete", "failed"]).toContain(response.status);
  if (response.status === "failed") expect(response.error?.code).toBeTruthy();
  else expect(response.incomplete_details?.reason).toBeTruthy();
}

/** The calls of custom tools, whose status the client's types do not have. */
export function inputsOf({ output }: Pick<Response, "output">): (ResponseCustomToolCall & { status?: string })[] {
  return output.filter((item) => item.type === "custom_tool_call");
}
