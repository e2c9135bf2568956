/** What a home is asked by `fetch`, because it answers with a stream or a socket that the Worker hands on as it is. */
export type HomeRequest =
  /** The log of a run as SSE: the events after `after`, and then those that come while the run lives. */
  | { kind: "events"; turn: string; after: number; obfuscation: boolean }
  /** All that the home keeps, as JSON lines (`home-lines.ts`). */
  | { kind: "export" }
  /** To enter the conversation: waits for it, at most `waitMs`. */
  | { kind: "conversation"; id: string; ticket: string; waitMs: number };

/** The URL by which a home is asked. Instances of other versions read it, too. */
export function homeUrl(request: HomeRequest): string {
  const url = new URL(request.kind, "http://home/");
  for (const [name, value] of Object.entries(parametersOf(request))) url.searchParams.set(name, value);
  return url.href;
}

function parametersOf(request: HomeRequest): Record<string, string> {
  switch (request.kind) {
    case "events":
      return { turn: request.turn, after: String(request.after), obfuscation: request.obfuscation ? "1" : "0" };
    case "export":
      return {};
    case "conversation":
      return { id: request.id, ticket: request.ticket, wait: String(request.waitMs) };
  }
}

/** The request of such a URL; undefined where it is none. */
export function readHomeUrl(url: string): HomeRequest | undefined {
  const { pathname, searchParams } = new URL(url);
  const text = (name: string) => searchParams.get(name) ?? "";
  switch (pathname) {
    case "/events": {
      const after = Number(searchParams.get("after") ?? -1);
      return { kind: "events", turn: text("turn"), after, obfuscation: searchParams.get("obfuscation") !== "0" };
    }
    case "/export":
      return { kind: "export" };
    case "/conversation":
      return { kind: "conversation", id: text("id"), ticket: text("ticket"), waitMs: Number(text("wait")) };
    default:
      return undefined;
  }
}
