/** What the facts about model servers need of one, real or simulated. */

export type Engine = "chat" | "harmony";

export interface ModelServer {
  engine: Engine;
  /** What it is, for the log: `vLLM 0.32.0`. */
  version: string;
  /** `http://127.0.0.1:PORT`, without `/v1`; the same after a restart. */
  url: string;
  /** The served name of a model that speaks by script; see `speech.ts`. */
  model: string;
  /** `max_model_len`. */
  window: number;
  /** What is another way with it; vLLM unless told. */
  kind?: "llamacpp";
  /** How many generations are under way or wait for their turn. Absent where other people use the server, too. */
  generations?(): Promise<number>;
  /** Absent where the server is not ours to kill. */
  life?: Life;
  /** Ends a server that is ours. */
  close(): Promise<void>;
}

/** Ways to die, and the way back. Each resolves when it has happened, as far as somebody outside can see it. */
export interface Life {
  /** `kill -9` of the process that generates: open streams get vLLM's own error, then the server closes its port. */
  crashEngine(): Promise<void>;
  /** SIGTERM: the port is closed, open streams fall silent and stay open. */
  terminate(): Promise<void>;
  /** `kill -9` of all of it: every connection is reset. */
  kill(): Promise<void>;
  /** Starts it again on its port, and waits until it serves. Also ends what was left of its last life. */
  start(): Promise<void>;
}

/** The names that the models of the facts are served under. */
export const MODELS: Record<Engine, string> = { chat: "tiny-qwen3", harmony: "tiny-gpt-oss" };

/** Their windows: small, so that a prompt of exactly that size is cheap. */
export const WINDOWS: Record<Engine, number> = { chat: 4096, harmony: 8192 };
