import { open, readdir, readlink } from "node:fs/promises";
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

/** Bytes of a table that are read at once, many times what a line has. The system gives four thousand at most. */
const PIECE = 8 * 1024;
const LINE_BREAK = 0x0a;

/**
 * The lines of a table of the system that have a text, in ASCII. Only they become strings: the table of a busy machine has megabytes,
 * and is read every other second.
 *
 * @throws The system's error if it cannot be read.
 */
async function linesWith(path: string, text: string): Promise<string[]> {
  await using file = await open(path);
  const lines: string[] = [];
  const piece = Buffer.alloc(PIECE);
  /** The bytes of a line that has begun. */
  let rest = 0;
  for (;;) {
    const { bytesRead } = await file.read(piece, rest, PIECE - rest);
    if (bytesRead === 0) return lines;
    const read = piece.subarray(0, rest + bytesRead);
    const whole = read.subarray(0, read.lastIndexOf(LINE_BREAK) + 1);
    for (let at = whole.indexOf(text); at !== -1; ) {
      const end = whole.indexOf(LINE_BREAK, at);
      lines.push(whole.toString("latin1", whole.lastIndexOf(LINE_BREAK, at) + 1, end));
      at = whole.indexOf(text, end);
    }
    rest = read.length - whole.length;
    read.copy(piece, 0, whole.length);
  }
}

/** The connections at this port in the network of a process; undefined where the system does not list them. */
async function connectionsAt({ pid, host, port }: Listener): Promise<Connection[] | undefined> {
  const own = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const tables = isIP(host) === 4 ? ["tcp"] : ["tcp", "tcp6"];
  const listed: string[][] = [];
  // The system looks through all its connections for each table, which takes milliseconds.
  for (const name of tables) {
    const lines = await linesWith(`/proc/${pid}/net/${name}`, own).catch(() => undefined);
    if (lines) listed.push(lines);
  }
  if (listed.length === 0) return undefined;
  return listed
    .flat()
    .map((line) => line.trimStart().split(/ +/, 10))
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
  const closed = connections.filter(({ state }) => state === CLOSE_WAIT);
  return [...new Set(closed.map(({ remote }) => peerOf(remote)))];
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
    // Such a table may also have a connection twice.
    const listed = new Set(connections.map(({ inode }) => `socket:[${inode}]`));
    count = [...new Set(sockets)].filter((socket) => listed.has(socket)).length;
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
