import { describe, expect, it } from "vitest";
import { authenticate, tenantCacheSalt } from "../../src/api/auth.ts";
import { ConfigError, loadConfig, type Variables, VLLM_EXTRAS } from "../../src/config.ts";

const HASH = "a".repeat(64);

/** The configuration of a deployment with these variables. */
function configure(vars: Partial<Variables>) {
  return loadConfig({ VLLM_BASE_URL: "http://vllm/v1", ...vars } as Variables);
}

function failure(run: () => unknown): Error {
  try {
    run();
  } catch (error) {
    if (error instanceof Error) return error;
  }
  throw new Error("Expected an error.");
}

describe("the configuration", () => {
  it("has defaults for everything but vLLM's URL", () => {
    expect(configure({})).toMatchObject({
      vllmBaseUrl: "http://vllm/v1",
      apiKeys: [],
      allowAnonymous: false,
      retentionMs: 30 * 86_400_000,
      heartbeatMs: 5_000,
      modelAliases: {},
    });
    expect(failure(() => loadConfig({} as Variables)).message).toContain("VLLM_BASE_URL");
  });

  it("needs no URL with a binding to vLLM, and asks that", async () => {
    const asked: string[] = [];
    const VLLM = {
      fetch: async (url: string) => {
        asked.push(url);
        return new Response();
      },
    };
    const config = loadConfig({ VLLM } as unknown as Variables);
    await config.vllmFetch(`${config.vllmBaseUrl}/models`, {});
    expect(asked).toEqual(["http://vllm/v1/models"]);
  });

  it("an empty variable is an unset one", () => {
    expect(configure({ API_KEYS: "", VLLM_API_KEY: "", HEARTBEAT_MS: "", MODEL_ALIASES: "" })).toMatchObject({
      apiKeys: [],
      vllmApiKey: undefined,
      heartbeatMs: 5_000,
    });
  });

  it.each<[what: string, vars: Partial<Variables>, open: string[]]>([
    ["none, with keys", { API_KEYS: `a:${HASH}` }, []],
    ["all, without", {}, [...VLLM_EXTRAS]],
    ["all, where the operator says so", { API_KEYS: `a:${HASH}`, VLLM_EXTRAS: "all" }, [...VLLM_EXTRAS]],
    ["none, where the operator says so", { VLLM_EXTRAS: "none" }, []],
    ["those that are named", { VLLM_EXTRAS: "priority, vllm_xargs" }, ["priority", "vllm_xargs"]],
  ])("of vLLM's extras clients may send %s", (_, vars, open) => {
    expect([...configure(vars).vllmExtras]).toEqual(open);
  });

  it.each(["top_k", "all,priority", "none priority", "Priority"])("'%s' is no list of extras", (VLLM_EXTRAS) => {
    expect(failure(() => configure({ VLLM_EXTRAS })).message).toMatch(/^VLLM_EXTRAS: expected 'all'/);
  });

  it("a slash at the end of the URL is none", () => {
    expect(configure({ VLLM_BASE_URL: "https://gpu.example/v1//" }).vllmBaseUrl).toBe("https://gpu.example/v1");
  });

  it.each<[name: keyof Variables, value: string]>([
    ["API_KEYS", "s3cret"],
    ["API_KEYS", "a:s3cret"],
    ["API_KEYS", `a:${HASH} b:${HASH.slice(1)}`],
    ["API_KEYS", `te!nant:${HASH}`],
    ["API_KEYS", `:${HASH}`],
    ["API_KEYS", `${"a".repeat(65)}:${HASH}`],
    ["MODEL_ALIASES", '{"a":s3cret'],
    ["MODEL_ALIASES", '["s3cret"]'],
    ["MODEL_ALIASES", '{"a":5}'],
    ["VLLM_BASE_URL", "s3cret"],
    ["VLLM_BASE_URL", "ftp://s3cret/v1"],
    ["VLLM_CONNECT_TIMEOUT_MS", "s3cret"],
    ["VLLM_FIRST_BYTE_TIMEOUT_MS", "0"],
    ["VLLM_IDLE_TIMEOUT_MS", "-1"],
    ["RETENTION_DAYS", "1.5"],
    ["MAX_REQUEST_BYTES", "5"],
    ["HEARTBEAT_MS", "1"],
    ["ALLOW_ANONYMOUS", "yes"],
    ["TOOL_SERVERS", '{"s3cret":"https://tools.example.com/mcp"}'],
    ["TOOL_SERVERS", '{"python":"ftp://s3cret/mcp"}'],
    ["TOOL_SERVERS", "https://s3cret/mcp"],
    ["TOOL_SERVER_MCP_LABELS", "s3cret"],
    ["TOOL_SERVER_MCP_LABELS", "constructor"],
    ["MCP_SERVERS", "https://tools.example.com/mcp?key=s3cret"],
    ["TOOL_OUTPUT_BYTES", "10"],
    ["MAX_TOOL_ROUNDS", "0"],
    ["SEARXNG_URL", "s3cret"],
    ["HARMONY_START_DATE", "tomorrow"],
    ["MODEL_ENGINES", '{"m":"s3cret"}'],
  ])("%s=%s is refused: the message names the variable and not its value", (name, value) => {
    const error = failure(() => configure({ [name]: value }));
    expect(error).toBeInstanceOf(ConfigError);
    expect(error.message).toMatch(new RegExp(`^${name}: `));
    expect(error.message).not.toMatch(/s3cret|aaaa/);
  });
});

describe("the configuration of tools", () => {
  it("has bounds, and no server", () => {
    expect(configure({}).tools).toMatchObject({
      servers: {},
      callTimeoutMs: 60_000,
      turnTimeMs: 600_000,
      outputBytes: 100_000,
      maxRounds: 32,
    });
    expect(configure({}).tools.isListed(new URL("https://tools.example.com/mcp"))).toBe(false);
  });

  it("takes the labels that vLLM has for the built-in tools", () => {
    const { builtinLabels } = configure({
      TOOL_SERVER_MCP_LABELS: "code_interpreter, web_search_preview,container",
    }).tools;
    expect([...builtinLabels]).toEqual([
      ["code_interpreter", "python"],
      ["web_search_preview", "browser"],
      ["container", "container"],
    ]);
  });

  it.each([
    ["https://tools.example.com/mcp", true],
    ["https://tools.example.com/mcp/session", true],
    ["https://tools.example.com/other", false],
    ["https://tools.example.com.evil.dev/mcp", false],
    ["http://tools.example.com/mcp", false],
  ])("lists MCP servers by their URLs' beginnings: %s, %s", (url, listed) => {
    const { tools } = configure({ MCP_SERVERS: "https://tools.example.com/mcp, http://10.0.0.7:9000/" });
    expect(tools.isListed(new URL(url))).toBe(listed);
    expect(tools.isListed(new URL("http://10.0.0.7:9000/mcp"))).toBe(true);
  });
});

describe("API keys", () => {
  /** SHA-256 of "test". */
  const TEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

  it.each([",", " ", "\n", ", ", "\r\n\t"])("are separated by %j", (separator) => {
    const config = configure({ API_KEYS: `a:${HASH}${separator}b:${TEST}${separator}` });
    expect(config.apiKeys.map((key) => key.tenant)).toEqual(["a", "b"]);
    expect(authenticate("Bearer test", config)).toBe("b");
  });

  it("of white space only are no keys: every call is refused", () => {
    const config = configure({ API_KEYS: " \n, " });
    expect(failure(() => authenticate("Bearer test", config)).message).toContain("API_KEYS");
  });

  it("win over ALLOW_ANONYMOUS", () => {
    const config = configure({ API_KEYS: `b:${TEST}`, ALLOW_ANONYMOUS: "true" });
    expect(() => authenticate(undefined, config)).toThrow("API key");
    expect(authenticate(undefined, configure({ ALLOW_ANONYMOUS: "true" }))).toBe("local");
  });

  it("a tenant's salt cannot be made by another tenant's own salt", () => {
    const salts = [
      ["a", undefined],
      ["a", "b"],
      ["a", ""],
      ["ab", undefined],
      ["a\nb", undefined],
      ["b", "a"],
    ] as const;
    const made = salts.map(([tenant, own]) => tenantCacheSalt(tenant, own));
    // The empty salt is none; a tenant's name has no line break (API_KEYS).
    expect(made[0]).toBe(made[2]);
    expect(new Set([made[0], made[1], made[3], made[5]]).size).toBe(4);
  });
});
