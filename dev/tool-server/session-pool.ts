import { GoneSession, ToolError } from "./tool-error.ts";

/** The state of a session between calls. */
export type SessionState = {
  /** Stops running work, and releases everything. */
  end(): Promise<void>;
};

/** A session as a call names it. */
export type NamedSession = {
  key: string;
  /** The call is refused if the session does not exist. */
  kept: boolean;
  /** How long it is kept without calls; undefined for the pool's own time. */
  idleMs?: number | undefined;
  /** The address space of its programs; undefined for the server's own limit. */
  memoryMb?: number | undefined;
};

type Session<State> = {
  state: State;
  idleMs: number;
  /** Resolves when the calls so far have ended. */
  idle: Promise<unknown>;
  calls: number;
  timer: NodeJS.Timeout;
};

export type SessionPoolOptions = { maxSessions: number; idleMs: number };

/**
 * The sessions of one tool. Calls of one session run one after another. Calls of different sessions run in parallel.
 */
export class SessionPool<State extends SessionState> {
  readonly #create: (named: NamedSession | null) => State;
  readonly #options: SessionPoolOptions;
  /** Ordered by last use. */
  readonly #sessions = new Map<string, Session<State>>();

  constructor(create: (named: NamedSession | null) => State, options: SessionPoolOptions) {
    this.#create = create;
    this.#options = options;
  }

  /**
   * Runs a call in a session. A missing session is created, unless it must have been kept. Without a name, the session lasts for this
   * call. Throws a ToolError if the session ends before the call's turn, or if there are too many sessions and all are
   * busy, and a GoneSession for one that was not kept.
   */
  async run<Result>(named: NamedSession | null, call: (state: State) => Promise<Result>): Promise<Result> {
    const name = named?.key ?? crypto.randomUUID();
    const known = this.#sessions.get(name);
    if (!known && named?.kept) throw new GoneSession();
    const session = known ?? this.#open(named);
    session.idleMs = named?.idleMs ?? session.idleMs;
    this.#touch(name, session);
    session.calls += 1;
    const result = session.idle.then(() => {
      if (this.#sessions.get(name) !== session) throw new GoneSession();
      return call(session.state);
    });
    session.idle = result.catch(() => {});
    try {
      return await result;
    } finally {
      session.calls -= 1;
      if (named === null) await this.end(name);
      else if (this.#sessions.get(name) === session) this.#touch(name, session);
    }
  }

  /** Ends a session and its running work. False if there is none. */
  async end(key: string): Promise<boolean> {
    const session = this.#sessions.get(key);
    if (session === undefined) return false;
    this.#sessions.delete(key);
    clearTimeout(session.timer);
    await session.state.end();
    return true;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#sessions.keys()].map((key) => this.end(key)));
  }

  #open(named: NamedSession | null): Session<State> {
    if (this.#sessions.size >= this.#options.maxSessions) this.#evict();
    const { idleMs } = this.#options;
    return { state: this.#create(named), idleMs, idle: Promise.resolve(), calls: 0, timer: setTimeout(() => {}, 0) };
  }

  #evict(): void {
    for (const [key, session] of this.#sessions) {
      if (session.calls > 0) continue;
      void this.end(key);
      return;
    }
    throw new ToolError(`All ${this.#options.maxSessions} sessions are busy. Try again later.`);
  }

  #touch(key: string, session: Session<State>): void {
    this.#sessions.delete(key);
    this.#sessions.set(key, session);
    clearTimeout(session.timer);
    session.timer = setTimeout(() => {
      if (session.calls === 0) void this.end(key);
    }, session.idleMs);
    session.timer.unref();
  }
}
