import type { ResponseObject, Usage } from "./response.ts";

/** The tree that continuations make of responses, as clients are told of it. OpenAI has no such thing. */

/** The beginning of what was said. */
export interface Preview {
  /** The type of the item. */
  type: string;
  /** One line, with `…` at its end where there is more; empty where the item has no text, such as an image. */
  text: string;
}

/** A response as a node. Its continuations name it. */
export interface TreeNode {
  id: string;
  object: "response.node";
  /** The node that it continues; it may be one that is not there any more. */
  previous_response_id: string | null;
  /** Its place in the conversation, from 1; null where its items are no part of one. Not every place has a response. */
  position: number | null;
  /** The last place of the conversation that it has seen; null outside of one. */
  continues_position: number | null;
  /** Unix seconds. */
  created_at: number;
  status: ResponseObject["status"];
  background: boolean;
  model: string;
  usage: Pick<Usage, "input_tokens" | "output_tokens" | "total_tokens"> | null;
  input: Preview | null;
  output: Preview | null;
}
