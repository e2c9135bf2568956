import { readFile } from "node:fs/promises";

/**
 * The clients that have closed their end of a connection on which they may still wait for an answer. workerd notices
 * them only by a write that fails, and a JSON answer is one write at the end.
 */

/** TCP's state CLOSE_WAIT in Linux's tables: the other end sends no more. */
const CLOSE_WAIT = "08";

/**
 * The clients of a process at this port, as `address:port`; IPv6 addresses in brackets, as URLs have them. Empty where
 * the system has no such tables (only Linux has).
 */
export async function closedPeers(pid: number | undefined, port: number): Promise<string[]> {
  const own = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const peers: string[] = [];
  for (const table of ["tcp", "tcp6"]) {
    const lines = await readFile(`/proc/${pid}/net/${table}`, "latin1").catch(() => "");
    for (const line of lines.split("\n")) {
      const [, local = "", remote = "", state] = line.trimStart().split(/ +/, 4);
      if (state === CLOSE_WAIT && local.endsWith(own)) peers.push(peerOf(remote));
    }
  }
  return peers;
}

/** An end of a connection, from the form of Linux's tables: words in the byte order of the machine, then the port. */
function peerOf(remote: string): string {
  const [words = "", port = ""] = remote.split(":");
  const bytes = Buffer.from(words, "hex");
  if (LITTLE_ENDIAN) bytes.swap32();
  const number = Number.parseInt(port, 16);
  if (bytes.length === 4) return `${bytes.join(".")}:${number}`;
  const groups = Array.from({ length: 8 }, (_, index) => bytes.readUInt16BE(2 * index).toString(16));
  return new URL(`tcp://[${groups.join(":")}]:${number}`).host;
}

const LITTLE_ENDIAN = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;
