import { bodyReadForText, type PassedAnswerText } from "@responses-edge/engines/passed-text";
import type { PassedAnswer } from "../assembly/model-access.ts";
import { tellRequest } from "../telemetry/content-log.ts";
import type { Caller } from "./transport.ts";

/** Requests to vLLM's own endpoints in the log of contents. */

/** A request that is passed on. */
interface PassedOn {
  endpoint: string;
  model: string | undefined;
  input: unknown;
  createdAt: number;
  /** The answer is text. Images and vectors are not logged. */
  hasText: boolean;
}

/** The answer to a request, which is logged where its caller has agreed. */
export function loggedAnswer(caller: Caller, { hasText, ...asked }: PassedOn, answer: PassedAnswer): PassedAnswer {
  const { config, identity } = caller;
  if (!config.contentLog || !identity.policy?.logsContent) return answer;
  const tell = ({ output, isCut, isWhole }: PassedAnswerText) =>
    tellRequest(caller, { ...asked, output, isCut, status: isWhole ? "completed" : "incomplete" });
  if (hasText && answer.body) {
    return { ...answer, body: bodyReadForText(answer.body, answer.type, config.contentLog.maxLength, tell) };
  }
  tell({ output: undefined, isCut: false, isWhole: true });
  return answer;
}
