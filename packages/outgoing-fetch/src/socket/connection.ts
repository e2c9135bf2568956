/** The two directions of a connection, and its end. */
export interface Connection {
  readable: ReadableStream<Uint8Array>;
  writable: WritableStream<Uint8Array>;
  close(): Promise<void>;
}

/** Opens connections, as `cloudflare:sockets` does, or a service. */
export interface Connector {
  connect(
    address: { hostname: string; port: number },
    options: { secureTransport: "on" | "off"; allowHalfOpen: boolean },
  ): Connection;
}
