import type { Fetch } from "@responses-edge/outgoing-fetch/guarded";
import type { Connector } from "@responses-edge/outgoing-fetch/socket/connection";

/**
 * The ways out of this server. The global `fetch` asks addresses that clients name; a self-hosted server confines it to public addresses
 * (docs/self-hosting.md). Addresses that the operator names in variables may be anywhere.
 */

/** Follows no redirect: the answer is the 3xx itself. A caller that follows it checks the target first (`guardedFetch`). */
export type { Fetch };

/** Turns a function that sends requests into a {@link Fetch}. */
export function withoutRedirects(send: Fetch): Fetch {
  return (url, init) => send(url, { ...init, redirect: "manual" });
}

/** The binding PRIVATE_NETWORK: a service that also reaches private addresses. Cloudflare has none. */
export interface PrivateNetwork extends Connector {
  fetch: Fetch;
}

/** Reaches the addresses that the operator has configured. */
export interface OperatorNetwork {
  fetch: Fetch;
  /** Undefined: the global `connect` opens sockets. */
  connector: Connector | undefined;
}

/** The global `fetch`. */
export const publicFetch: Fetch = (url, init) => fetch(url, { ...init, redirect: "manual" });

/** The network of an environment's binding; without one, the network that all requests use. */
export function operatorNetwork({ PRIVATE_NETWORK: network }: { PRIVATE_NETWORK?: PrivateNetwork }): OperatorNetwork {
  if (!network) return { fetch: publicFetch, connector: undefined };
  return { fetch: (url, init) => network.fetch(url, { ...init, redirect: "manual" }), connector: network };
}
