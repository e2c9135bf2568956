import type { ResponseObject, Usage } from "../response.ts";

/** The tree that continuations form, in the API. OpenAI has no such thing. */

/** The beginning of a message. */
export interface Preview {
  /** The type of the item. */
  type: string;
  /** One line, with `…` at its end if there is more; empty if the item has no text, such as an image. */
  text: string;
}

/** A response as a node. Its continuations name it. */
export interface TreeNode {
  id: string;
  object: "response.node";
  /** The node that it continues, which may have been deleted. */
  previous_response_id: string | null;
  /**
   * Its position in the conversation, from 1; null if its items are not part of one. Not every position has a response.
   */
  position: number | null;
  /** The last position of the conversation that it saw; null outside of one. */
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
