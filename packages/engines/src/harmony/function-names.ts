import { flatName, isOwnNamespace } from "@responses-edge/responses-api/tool-names";

/** A tool by the name that the rest of the code uses, and its namespace. */
export interface NamedTool {
  flatName: string;
  name: string;
  namespace?: string;
}

/**
 * Names of functions in Harmony. The tools block declares TypeScript types, so a name that is no identifier is
 * rewritten, and the model's calls are mapped back (Ollama does the same; vLLM #51977 shows what happens otherwise).
 * Tools of a caller's namespace are in a Harmony namespace.
 */
export class FunctionNames {
  readonly #functions = new Identifiers();
  readonly #namespaces: Identifiers;
  /** Names in a namespace, by the caller's name of the namespace. */
  readonly #inNamespace = new Map<string, Identifiers>();
  /** Tools of namespaces, by flat name. */
  readonly #namespaced = new Map<string, NamedTool>();
  /** The caller's name, by every name that the model may write, without `functions.`. */
  readonly written = new Map<string, string>();

  /**
   * `tools` are the caller's, each only by name if it is in no namespace; those in the prompt first. No namespace of
   * theirs gets the name of one of `hosted`.
   */
  constructor(tools: Iterable<string | NamedTool>, hosted: readonly string[]) {
    this.#namespaces = new Identifiers(["functions", ...hosted]);
    const all = [...tools];
    const isNamespaced = (tool: string | NamedTool) =>
      typeof tool !== "string" && tool.namespace !== undefined && !isOwnNamespace(tool.namespace, tool.name);
    const names = [...new Set(all.flatMap((tool) => (isNamespaced(tool) ? [] : nameOf(tool))))];
    const members = all.flatMap((tool) => (typeof tool !== "string" && isNamespaced(tool) ? tool : []));
    this.#functions.add(names);
    for (const name of names) this.written.set(this.#functions.shown(name), name);
    this.#namespaces.add(members.flatMap(({ namespace }) => namespace ?? []));
    for (const [namespace, own] of Map.groupBy(members, (tool) => tool.namespace ?? "")) {
      const identifiers = new Identifiers();
      identifiers.add(own.map(({ name }) => name));
      this.#inNamespace.set(namespace, identifiers);
      for (const tool of own) this.#namespaced.set(tool.flatName, tool);
    }
    for (const tool of this.#namespaced.values()) this.written.set(this.recipient(tool.flatName), tool.flatName);
    // Other spellings are understood, too, if they are unambiguous.
    const understand = (written: string, name: string) => {
      if (!this.written.has(written)) this.written.set(written, name);
    };
    for (const name of names) understand(name, name);
    const alone = Map.groupBy(this.#namespaced.values(), ({ name }) => name);
    for (const tool of this.#namespaced.values()) {
      understand(tool.flatName, tool.flatName);
      understand(`${tool.namespace}.${tool.name}`, tool.flatName);
      if (alone.get(tool.name)?.length === 1) understand(this.shown(tool.flatName), tool.flatName);
    }
  }

  /** The name that the model sees, in its namespace. Never throws: an unknown name is made an identifier. */
  shown(name: string): string {
    const tool = this.#namespaced.get(name);
    const identifiers = tool ? this.#inNamespace.get(tool.namespace ?? "") : this.#functions;
    return identifiers?.shown(tool?.name ?? name) ?? identifierOf(name);
  }

  /** The namespace in which the model sees a tool. */
  namespaceOf(name: string): string {
    const namespace = this.#namespaced.get(name)?.namespace;
    return namespace === undefined ? "functions" : this.#namespaces.shown(namespace);
  }

  /** The recipient of a call, by the tool's flat name: `functions.f`, `agents.close`. */
  recipient(name: string): string {
    return `${this.namespaceOf(name)}.${this.shown(name)}`;
  }

  /** The same by namespace and name. */
  recipientOf(namespace: string | undefined, name: string): string {
    return this.recipient(flatName(namespace, name));
  }

  /** The recipients of tools in namespaces of their own, by flat name. */
  get namespaced(): ReadonlyMap<string, string> {
    return new Map([...this.#namespaced.keys()].map((name) => [name, this.recipient(name)]));
  }
}

function nameOf(tool: string | NamedTool): string {
  return typeof tool === "string" ? tool : tool.flatName;
}

/** Makes names of one scope distinct identifiers. */
class Identifiers {
  readonly #byName = new Map<string, string>();
  readonly #taken: Set<string>;
  /** How often a taken name was wanted, from which the next one is numbered. */
  readonly #counts = new Map<string, number>();

  constructor(reserved: readonly string[] = []) {
    this.#taken = new Set(reserved);
  }

  /** Names that are identifiers stay unchanged. */
  add(names: readonly string[]): void {
    const all = [...new Set(names)];
    for (const name of all) if (isIdentifier(name) && !this.#taken.has(name)) this.#set(name, name);
    for (const name of all) if (!this.#byName.has(name)) this.#set(name, this.#free(identifierOf(name)));
  }

  shown(name: string): string {
    return this.#byName.get(name) ?? identifierOf(name);
  }

  #set(name: string, shown: string): void {
    this.#byName.set(name, shown);
    this.#taken.add(shown);
  }

  /** The first of `wanted`, `wanted_2`, `wanted_3`, … that is not taken. */
  #free(wanted: string): string {
    for (let count = (this.#counts.get(wanted) ?? 0) + 1; ; count += 1) {
      const candidate = count === 1 ? wanted : `${wanted}_${count}`;
      if (this.#taken.has(candidate)) continue;
      this.#counts.set(wanted, count);
      return candidate;
    }
  }
}

const MAX_LENGTH = 64;

function isIdentifier(name: string): boolean {
  return /^[A-Za-z_]\w{0,63}$/.test(name);
}

/** A name made an identifier, for one that need not be looked up. */
export function identifierOf(name: string): string {
  return name
    .slice(0, MAX_LENGTH)
    .replaceAll(/\W/g, "_")
    .replace(/^(?=\d|$)/, "_");
}
