import { readdir, readFile, readlink } from "node:fs/promises";
import { isIP } from "node:net";
import { join } from "node:path";

/** The connections of clients, as Linux lists them. Other systems do not. */

interface Connection {
  /** The client's end: words in the byte order of the machine, then the port. */
  remote: string;
  state: string;
  /** The socket's number. */
  inode: string;
}

/** States of TCP in Linux's tables. In the first, the other end sends no more. */
const CLOSE_WAIT = "08";
const LISTENS = "0A";

/** Where a process listens. */
interface Listener {
  pid: number;
  host: string;
  port: number;
}

/** The connections at this port in the network of a process; undefined where the system does not list them. */
async function connectionsAt({ pid, host, port }: Listener): Promise<Connection[] | undefined> {
  const own = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const read = (name: string) => readFile(`/proc/${pid}/net/${name}`, "latin1").catch(() => undefined);
  // The system looks through all its connections for each table, which takes milliseconds.
  const tables = await Promise.all((isIP(host) === 4 ? ["tcp"] : ["tcp", "tcp6"]).map(read));
  const listed = tables.filter((table) => table !== undefined);
  if (listed.length === 0) return undefined;
  const lines = listed
    .flatMap((table) => table.split("\n"))
    .filter((line) => line.includes(own))
    .map((line) => line.trimStart().split(/ +/, 10));
  return lines
    .filter(([, local = "", , state]) => local.endsWith(own) && state !== LISTENS)
    .map(([, , remote = "", state = "", , , , , , inode = ""]) => ({ remote, state, inode }));
}

/**
 * The clients that have closed their end of a connection on which they may still wait for an answer, as `address:port`;
 * IPv6 addresses in brackets, as URLs have them. workerd notices them only by a write that fails, and a JSON answer is
 * one write at the end.
 */
export async function closedPeers(listener: Listener): Promise<string[]> {
  const connections = (await connectionsAt(listener)) ?? [];
  return connections.filter(({ state }) => state === CLOSE_WAIT).map(({ remote }) => peerOf(remote));
}

/** So many looks at the same sockets later the connections are counted anew: one that was reset is in no table any more. */
const LOOKS_PER_COUNT = 5;

/**
 * Counts the connections that a process itself has at its port, again and again; undefined where the system does not tell. Most
 * looks only compare its sockets with those of the last count.
 */
export function connectionCounter(listener: Listener): () => Promise<number | undefined> {
  const folder = `/proc/${listener.pid}/fd`;
  let looks = 0;
  let counted: string | undefined;
  let count = 0;
  return async () => {
    const descriptors = await readdir(folder).catch(() => undefined);
    if (!descriptors) return undefined;
    const links = await Promise.all(descriptors.map((name) => readlink(join(folder, name)).catch(() => "")));
    const sockets = links.filter((link) => link.startsWith("socket:")).toSorted();
    const seen = sockets.join();
    looks += 1;
    // A table that changes while it is read may lack a connection: that there is none is counted each time.
    if (count > 0 && seen === counted && looks < LOOKS_PER_COUNT) return count;
    const connections = await connectionsAt(listener);
    if (!connections) return undefined;
    const own = new Set(sockets);
    count = connections.filter(({ inode }) => own.has(`socket:[${inode}]`)).length;
    counted = seen;
    looks = 0;
    return count;
  };
}

/** A client's end of a connection, from the form of Linux's tables. */
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
