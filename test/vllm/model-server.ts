/** The interface of a model server, real or simulated, that the facts use. */

export type Engine = "chat" | "harmony";

export interface ModelServer {
  engine: Engine;
  /** Its name for the log: `vLLM 0.32.0`. */
  version: string;
  /** `http://127.0.0.1:PORT`, without `/v1`; the same after a restart. */
  url: string;
  /** The served name of a scripted model (`speech.ts`). */
  model: string;
  /** `max_model_len`. */
  window: number;
  /** Its differences from vLLM. */
  kind?: "llamacpp";
  /** The number of generations that run or wait. Absent if other people use the server, too. */
  generations?(): Promise<number>;
  /** Absent if the tests must not kill the server. */
  life?: Life;
  /** Ends a server that the tests own. */
  close(): Promise<void>;
}

/** Kinds of death, and the restart. Each resolves when a client can see the effect. */
export interface Life {
  /** `kill -9` of the process that generates: open streams get vLLM's own error, then the server closes its port. */
  crashEngine(): Promise<void>;
  /** SIGTERM: the port is closed, open streams send nothing more and stay open. */
  terminate(): Promise<void>;
  /** `kill -9` of all processes: every connection is reset. */
  kill(): Promise<void>;
  /**
   * Starts it again on its port, and waits until it serves. Also ends the remaining processes of the previous start.
   */
  start(): Promise<void>;
}

/** The names that the models of the facts are served under. */
export const MODELS: Record<Engine, string> = { chat: "tiny-qwen3", harmony: "tiny-gpt-oss" };

/** Their windows: small, so that a prompt of exactly that size is cheap. */
export const WINDOWS: Record<Engine, number> = { chat: 4096, harmony: 8192 };
