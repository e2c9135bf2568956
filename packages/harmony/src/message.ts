/**
 * Harmony messages in the JSON form of openai/harmony's Python `Message.to_dict` and `Message.from_dict`, which vLLM's
 * `input_messages`, `output_messages` and `previous_input_messages` use.
 */

export const ROLES = ["system", "developer", "user", "assistant", "tool"] as const;
export type Role = (typeof ROLES)[number];

export const CHANNELS = ["analysis", "commentary", "final"] as const;
export type Channel = (typeof CHANNELS)[number];

export interface HarmonyMessage {
  role: Role;
  /** The author's name; a tool's is its full name, such as `functions.get_weather`. */
  name?: string;
  /** The recipient of a message that is not for everybody: `functions.get_weather`, `assistant`. */
  recipient?: string;
  channel?: Channel;
  /** The content type in the header, with its marker if there is one: `<|constrain|>json`, `json`, `code`. */
  content_type?: string;
  content: Content[];
  /**
   * The header as the model wrote it: everything between `<|start|>` and `<|message|>`, special tokens as their
   * literals. Present only if it differs from the one that the fields give, and has the same content.
   */
  header?: string;
}

export type Content = TextContent | SystemContent | DeveloperContent;

export interface TextContent {
  type: "text";
  text: string;
}

/** The system message: the identity, the reasoning effort, the built-in tools and the channels. */
export interface SystemContent {
  type: "system_content";
  model_identity?: string;
  reasoning_effort?: "Low" | "Medium" | "High";
  /** `YYYY-MM-DD`. */
  conversation_start_date?: string;
  knowledge_cutoff?: string;
  channel_config?: { valid_channels: string[]; channel_required: boolean };
  /** Built-in tools by namespace: `browser`, `python`, `container`. */
  tools?: Record<string, ToolNamespace>;
}

/** The developer message: instructions, and the caller's functions in the namespace `functions`. */
export interface DeveloperContent {
  type: "developer_content";
  instructions?: string;
  tools?: Record<string, ToolNamespace>;
  /** Not in openai/harmony: the `# Response Formats` section from gpt-oss's training, without its heading. */
  response_format?: { name: string; description?: string; schema: unknown };
}

export interface ToolNamespace {
  name: string;
  description?: string;
  tools: ToolDescription[];
}

export interface ToolDescription {
  name: string;
  description: string;
  /** JSON Schema of the arguments; absent for a tool without any. */
  parameters?: unknown;
}
