/** A request to a model server that has ended with an answer, or with a fault. */
export interface ServerAttempt {
  /** The server's name. */
  server: string;
  path: string;
  /** Which try of the same request it was: 1 for the first. */
  attempt: number;
  /** 200 once the server has accepted; of a fault the status that its answer had, if there was one. */
  status: number | undefined;
  /** The code of the fault. */
  fault: string | undefined;
  /** When it was sent, and when its headers or the fault had come. Unix milliseconds. */
  sentAt: number;
  answeredAt: number;
}
