import { readdir, readFile, readlink } from "node:fs/promises";
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

/** The connections at this port in the network of a process; undefined where the system does not list them. */
async function connectionsAt(pid: number, port: number): Promise<Connection[] | undefined> {
  const own = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const read = (name: string) => readFile(`/proc/${pid}/net/${name}`, "latin1").catch(() => undefined);
  const tables = await Promise.all(["tcp", "tcp6"].map(read));
  const listed = tables.filter((table) => table !== undefined);
  if (listed.length === 0) return undefined;
  const lines = listed.flatMap((table) => table.split("\n")).map((line) => line.trimStart().split(/ +/, 10));
  return lines
    .filter(([, local = "", , state]) => local.endsWith(own) && state !== LISTENS)
    .map(([, , remote = "", state = "", , , , , , inode = ""]) => ({ remote, state, inode }));
}

/**
 * The clients that have closed their end of a connection on which they may still wait for an answer, as `address:port`;
 * IPv6 addresses in brackets, as URLs have them. workerd notices them only by a write that fails, and a JSON answer is
 * one write at the end.
 */
export async function closedPeers(pid: number | undefined, port: number): Promise<string[]> {
  const connections = (pid && (await connectionsAt(pid, port))) || [];
  return connections.filter(({ state }) => state === CLOSE_WAIT).map(({ remote }) => peerOf(remote));
}

/** The number of connections that the process itself has at this port; undefined where the system does not tell. */
export async function openConnections(pid: number, port: number): Promise<number | undefined> {
  const folder = `/proc/${pid}/fd`;
  const descriptors = await readdir(folder).catch(() => undefined);
  const connections = await connectionsAt(pid, port);
  if (!descriptors || !connections) return undefined;
  const links = descriptors.map((descriptor) => readlink(join(folder, descriptor)).catch(() => ""));
  const own = new Set(await Promise.all(links));
  return connections.filter(({ inode }) => own.has(`socket:[${inode}]`)).length;
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
