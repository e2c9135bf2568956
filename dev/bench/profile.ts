/** A CPU profile of a Worker over the inspector of workerd, as self time per function. */

interface ProfileNode {
  id: number;
  callFrame: { functionName: string; url: string; lineNumber: number };
  children?: number[];
}

interface CpuProfile {
  nodes: ProfileNode[];
  samples: number[];
  timeDeltas: number[];
}

/** A function's share of the busy time: its own, and including everything that it calls (without awaited work). */
export interface ProfileLine {
  name: string;
  self: number;
  total: number;
}

export interface Profile {
  busyMs: number;
  lines: ProfileLine[];
}

export async function profile(inspectorPort: number, work: () => Promise<void>): Promise<Profile> {
  const session = await openSession(inspectorPort);
  await session.call("Profiler.enable");
  await session.call("Profiler.setSamplingInterval", { interval: 100 });
  await session.call("Profiler.start");
  await work();
  const { profile } = (await session.call("Profiler.stop")) as { profile: CpuProfile };
  session.close();
  return summarize(profile);
}

/** The size of JavaScript's heap in MB, garbage included (workerd cannot collect on demand). */
export async function heapMb(inspectorPort: number): Promise<number> {
  return (await heapUsage(inspectorPort)).used;
}

/** The same, plus the buffers and WebAssembly memories outside the heap, in MB. */
export async function heapUsage(inspectorPort: number): Promise<{ used: number; buffers: number }> {
  const session = await openSession(inspectorPort);
  const usage = (await session.call("Runtime.getHeapUsage")) as { usedSize: number; backingStorageSize?: number };
  session.close();
  return { used: usage.usedSize / 2 ** 20, buffers: (usage.backingStorageSize ?? 0) / 2 ** 20 };
}

async function openSession(inspectorPort: number): Promise<Session> {
  const list = (await (await fetch(`http://127.0.0.1:${inspectorPort}/json`)).json()) as {
    webSocketDebuggerUrl: string;
  }[];
  const url = list[0]?.webSocketDebuggerUrl;
  if (!url) throw new Error("the inspector lists no target");
  return Session.open(url);
}

function summarize({ nodes, samples, timeDeltas }: CpuProfile): Profile {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)));
  const lines = new Map<string, ProfileLine>();
  let busy = 0;
  for (const [index, id] of samples.entries()) {
    const ms = (timeDeltas[index] ?? 0) / 1000;
    const stack: string[] = [];
    for (let node = byId.get(id); node; node = byId.get(parents.get(node.id) ?? -1)) stack.push(nameOf(node));
    const [top = "?"] = stack;
    if (top === "(idle)") continue;
    busy += ms;
    for (const name of new Set(stack)) {
      const line = lines.get(name) ?? { name, self: 0, total: 0 };
      line.total += ms;
      if (name === top) line.self += ms;
      lines.set(name, line);
    }
  }
  const shares = [...lines.values()].map(({ name, self, total }) => ({ name, self: self / busy, total: total / busy }));
  return { busyMs: busy, lines: shares.sort((left, right) => right.self - left.self) };
}

function nameOf({ callFrame: { functionName, url, lineNumber } }: ProfileNode): string {
  const name = functionName || "(anonymous)";
  return url === "" ? name : `${name} ${url.split("/").at(-1)}:${lineNumber + 1}`;
}

class Session {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #calls = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => {
      const { id, result, error } = JSON.parse(String(data));
      const call = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) call?.reject(new Error(error.message));
      else call?.resolve(result);
    });
  }

  static open(url: string): Promise<Session> {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url);
      socket.addEventListener("open", () => resolve(new Session(socket)));
      socket.addEventListener("error", () => reject(new Error(`no connection to ${url}`)));
    });
  }

  call(method: string, params: object = {}): Promise<unknown> {
    const id = ++this.#calls;
    this.#socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  close(): void {
    this.#socket.close();
  }
}
