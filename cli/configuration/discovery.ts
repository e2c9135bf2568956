import { lookup } from "node:dns/promises";
import type { TextVariables } from "../../src/config/index.ts";
import type { RawEntry } from "../../src/config/raw-servers.ts";
import { serversOf, withFile } from "../../src/config/raw-servers.ts";

/**
 * Model servers behind one name: `discover` in `UPSTREAMS`. Each address is a server of its own, so that a conversation
 * finds its own again.
 */

/** The interval of name resolution. Milliseconds. */
const RESOLVE_MS = 10_000;

/** A name whose first resolution takes longer is a single server until then. Milliseconds. */
const FIRST_MS = 5_000;

/** The maximum number of servers of a name. */
const MAX_ADDRESSES = 64;

/** The longest name of a server (`UPSTREAMS`). */
const MAX_NAME = 64;

/** The known addresses of a name. */
interface Source extends Disposable {
  /** Resolves when they are known for the first time. */
  first: Promise<void>;
  addresses(): readonly string[];
}

export class Discovery implements Disposable {
  readonly #onChange: () => void;
  readonly #sources = new Map<string, Source>();

  /** `onChange` is called when the addresses of a name have changed since its last expansion. */
  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /**
   * Gives the file's variables with a server for each discovered address. The file (`file`) overrides the environment's
   * variables. Gives `file` itself if no address is to be discovered.
   */
  async expand(variables: TextVariables, file: TextVariables | undefined): Promise<TextVariables | undefined> {
    const all = file ? withFile(variables, file) : variables;
    const servers = serversOf(all);
    const wanted = new Set(servers.filter(({ discover }) => discover).map(hostOf));
    for (const [host, source] of this.#sources) {
      if (wanted.has(host)) continue;
      source[Symbol.dispose]();
      this.#sources.delete(host);
    }
    if (wanted.size === 0) return file;
    for (const host of wanted) {
      if (!this.#sources.has(host)) this.#sources.set(host, resolving(host, this.#onChange));
    }
    const late = new Promise<void>((resolve) => setTimeout(resolve, FIRST_MS).unref());
    await Promise.race([Promise.all([...this.#sources.values()].map(({ first }) => first)), late]);
    const secrets = (all.UPSTREAM_SECRETS ? JSON.parse(all.UPSTREAM_SECRETS) : {}) as Record<string, object>;
    const expanded = servers.flatMap((entry) => {
      if (!entry.discover) return [entry];
      const found = this.#sources.get(hostOf(entry))?.addresses() ?? [];
      const name = String(entry.name ?? hostOf(entry));
      const own = { ...secrets[String(entry.name)] };
      delete secrets[String(entry.name)];
      return found.length > 0
        ? found.map((each) => serverAt(entry, name, own, each))
        : [{ ...entry, ...own, discover: undefined }];
    });
    const rest = Object.keys(secrets).length > 0 && { UPSTREAM_SECRETS: JSON.stringify(secrets) };
    const { UPSTREAM_SECRETS: _, ...others } = file ?? {};
    return { ...others, UPSTREAMS: JSON.stringify(expanded), ...rest };
  }

  /** True if any server is to be discovered. */
  get isUsed(): boolean {
    return this.#sources.size > 0;
  }

  [Symbol.dispose](): void {
    for (const source of this.#sources.values()) source[Symbol.dispose]();
    this.#sources.clear();
  }
}

function hostOf({ url }: RawEntry): string {
  return new URL(String(url)).hostname;
}

/** The entry of one address. */
function serverAt(entry: RawEntry, name: string, secrets: object, address: string): RawEntry {
  const url = new URL(String(entry.url));
  url.hostname = address.includes(":") ? `[${address}]` : address;
  const suffix = address.replaceAll(/[^A-Za-z0-9_.-]/g, "-").replaceAll(".", "-");
  return {
    ...secrets,
    ...entry,
    discover: undefined,
    name: `${name}-${suffix}`.slice(-MAX_NAME).replace(/^[^A-Za-z0-9]+/, ""),
    url: url.href.replace(/\/$/, ""),
  };
}

/** Resolves a name again and again. While resolution fails, the known addresses stay. */
function resolving(host: string, onChange: () => void): Source {
  let addresses: readonly string[] = [];
  const look = async () => {
    try {
      const found = await lookup(host, { all: true });
      const before = addresses.join();
      addresses = [...new Set(found.map(({ address }) => address))].toSorted().slice(0, MAX_ADDRESSES);
      return before !== addresses.join();
    } catch {
      return false;
    }
  };
  const timer = setInterval(async () => {
    if (await look()) onChange();
  }, RESOLVE_MS);
  timer.unref();
  return { first: look().then(() => {}), addresses: () => addresses, [Symbol.dispose]: () => clearInterval(timer) };
}
