import { once } from "node:events";
import { createServer, isIP, isIPv6 } from "node:net";
import { networkInterfaces } from "node:os";
import { EXIT, Refusal, systemCode } from "./refusal.ts";

/** The addresses on which a server listens: HOST and PORT. */

/** The form of a host in an address, before the port. */
function bracketed(host: string): string {
  return isIPv6(host) ? `[${host}]` : host;
}

/** The addresses behind a name. `localhost` has two, and some clients try only one of them. */
function hostsOf(host: string): string[] {
  if (host !== "localhost") return [host];
  const addresses = Object.values(networkInterfaces()).flat();
  return ["127.0.0.1", ...(addresses.some((each) => each?.address === "::1") ? ["::1"] : [])];
}

/** The hosts on which a server opens its sockets. */
export function listeningHosts(host: string, port: number): string[] {
  const hosts = hostsOf(host);
  // With port 0, two sockets would get two different ports.
  return port === 0 ? hosts.slice(0, 1) : hosts;
}

/** The addresses of a host's sockets, `host:port`. `::` takes IPv4 too. */
export function socketAddresses(host: string, port: number): string[] {
  return listeningHosts(host, port).map((each) => `${bracketed(each)}:${port}`);
}

/** Tells whether only this machine reaches a host. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
}

/** The URL by which this machine reaches a server that listens there. */
export function ownUrl(scheme: "http" | "https", host: string, port: number): string {
  const reached = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host === "localhost" ? "127.0.0.1" : host;
  return `${scheme}://${bracketed(reached)}:${port}`;
}

/** Throws a Refusal if the address is not available. workerd itself would exit without a reason. */
export async function checkAddress(host: string, port: number): Promise<void> {
  for (const each of hostsOf(host)) {
    const server = createServer();
    try {
      server.listen({ host: each, port, exclusive: true });
      await once(server, "listening");
      server.close();
      await once(server, "close");
    } catch (error) {
      throw new Refusal(EXIT.address, addressFault(each, port, systemCode(error)));
    }
  }
}

/** The reason why nothing can listen there, from the system's error code. */
export function addressFault(host: string, port: number, code: string): string {
  return `Cannot listen on ${bracketed(host)}:${port}: ${reason(code)}.`;
}

function reason(code: string): string {
  switch (code) {
    case "EADDRINUSE":
      return "another program listens there (PORT sets another port)";
    case "EACCES":
      return "this user may not (ports below 1024 often need an administrator)";
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return "HOST is no address of this machine";
    default:
      return code;
  }
}
