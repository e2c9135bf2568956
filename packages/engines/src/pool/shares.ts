/**
 * How the processes that send requests to one model server share its limit. Each reports its requests; the board answers with the
 * number that it may have in progress, and with the tokens that tenants have had elsewhere. Pure data.
 */

/** The requests of one process for one server. */
export interface ServerDemand {
  /** The server's name. */
  server: string;
  /** The limit of all processes together. */
  limit: number;
  inFlight: number;
  /** Requests that wait, and those in progress whose tokens are counted, by tenant. */
  requests: Readonly<Record<string, number>>;
  /** Tokens that tenants have had since the last report. */
  tokens: Readonly<Record<string, number>>;
}

/** The part of a server that a process may use. */
export interface ServerShare {
  server: string;
  /** Most requests in progress. */
  share: number;
  /** Tokens that tenants have had elsewhere since the last report. */
  tokens: Readonly<Record<string, number>>;
}

interface Reported {
  demand: ServerDemand;
  /** Unix milliseconds. */
  at: number;
  /** The share that it was told. */
  share: number;
  /** Tokens elsewhere that the process has not been told of. */
  untold: Map<string, number>;
}

/** Processes that have not reported for this long are gone. Milliseconds. */
const GONE_MS = 3_000;

/** Most tenants in one message. */
export const MAX_TENANTS = 256;

/** Most processes that are remembered. */
const MAX_PROCESSES = 1_000;

/** The reports of all processes. */
export class ServerShares {
  readonly #servers = new Map<string, Map<string, Reported>>();

  /** Takes a process's report, and gives its shares. `now`: Unix milliseconds. */
  exchange(process: string, demands: readonly ServerDemand[], now: number): ServerShare[] {
    return demands.map((demand) => {
      const reports = this.#servers.get(demand.server) ?? new Map<string, Reported>();
      this.#servers.set(demand.server, reports);
      for (const [other, { at }] of reports) if (Math.abs(now - at) > GONE_MS) reports.delete(other);
      const before = reports.get(process);
      const untold = before?.untold ?? new Map<string, number>();
      const own: Reported = { demand, at: now, untold: new Map(), share: before?.share ?? 1 };
      if (reports.size < MAX_PROCESSES) reports.set(process, own);
      let elsewhere = 0;
      for (const [other, report] of reports) {
        if (other === process) continue;
        add(report.untold, demand.tokens);
        elsewhere += usedBy(report);
      }
      const shares = sharesOf(
        demand.limit,
        [...reports].map(
          ([
            name,
            {
              demand: { inFlight, requests },
            },
          ]) => ({ name, inFlight, requests }),
        ),
      );
      // Others may still use what they were told before.
      own.share = Math.max(1, Math.min(shares.get(process) ?? 1, demand.limit - elsewhere));
      return { server: demand.server, share: own.share, tokens: Object.fromEntries(untold) };
    });
  }
}

/** Most requests that a process may have in progress until its next report, as far as it has any. */
function usedBy({ demand: { inFlight, requests }, share }: Reported): number {
  const all = Object.values(requests).reduce((sum, count) => sum + count, 0);
  return Math.max(inFlight, Math.min(share, all));
}

function add(counts: Map<string, number>, tokens: Readonly<Record<string, number>>): void {
  for (const [tenant, count] of Object.entries(tokens)) {
    if (counts.has(tenant) || counts.size < MAX_TENANTS) counts.set(tenant, (counts.get(tenant) ?? 0) + count);
  }
}

interface ProcessDemand extends Pick<ServerDemand, "inFlight" | "requests"> {
  name: string;
}

/**
 * The shares of processes in a limit, at least 1 each. Every tenant has one vote, which it divides among the processes as its
 * requests are divided; requests that are not counted vote together, as one tenant of their process. No process gets
 * more than it needs, and one more, while others need it; what nobody needs is divided evenly.
 */
export function sharesOf(limit: number, processes: readonly ProcessDemand[]): Map<string, number> {
  const totals = new Map<string, number>();
  for (const { requests } of processes) add(totals, requests);
  const parts = processes.map(({ name, inFlight, requests }) => {
    let votes = 0;
    let known = 0;
    for (const [tenant, count] of Object.entries(requests)) {
      votes += count / Math.max(1, totals.get(tenant) ?? count);
      known += count;
    }
    if (inFlight > known) votes += 1;
    return { name, needed: Math.max(inFlight, known) + 1, votes: Math.max(votes, 0.1), share: 0 };
  });
  let left = limit;
  for (let open = parts; open.length > 0 && left > 1e-9; ) {
    const perVote = left / open.reduce((sum, { votes }) => sum + votes, 0);
    const filled = open.filter(({ needed, votes, share }) => needed - share <= perVote * votes);
    const given = filled.length > 0 ? filled : open;
    for (const part of given) {
      const more = filled.length > 0 ? part.needed - part.share : perVote * part.votes;
      part.share += more;
      left -= more;
    }
    open = filled.length > 0 ? open.filter((part) => !filled.includes(part)) : [];
  }
  if (left > 0) for (const part of parts) part.share += left / parts.length;
  return rounded(limit, parts);
}

/** Whole shares, whose sum is the limit, or more where there are more processes. */
function rounded(limit: number, parts: readonly { name: string; share: number }[]): Map<string, number> {
  const shares = new Map(parts.map(({ name, share }) => [name, Math.max(1, Math.floor(share + 1e-9))]));
  let left = limit - shares.values().reduce((sum, share) => sum + share, 0);
  const byRest = parts.toSorted((a, b) => (b.share % 1) - (a.share % 1) || (a.name < b.name ? -1 : 1));
  for (const { name } of byRest) {
    if (left <= 0) break;
    shares.set(name, (shares.get(name) ?? 0) + 1);
    left -= 1;
  }
  return shares;
}
