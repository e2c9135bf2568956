import { env } from "cloudflare:workers";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { tenantCacheSalt } from "../../src/assembly/affinity.ts";
import {
  type Config,
  ConfigError,
  loadConfig,
  misspeltVariables,
  VARIABLE_NAMES,
  type Variables,
  VLLM_EXTRAS,
} from "../../src/config/index.ts";
import { authenticate, type KeySources } from "../../src/http/auth.ts";
import { withObjects } from "../../src/store/objects/objects.ts";
import { PLUGIN_LIST } from "../../src/tools/plugins.ts";

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
  it("names each variable once", () => {
    expect(new Set(VARIABLE_NAMES).size).toBe(VARIABLE_NAMES.length);
  });

  it("has defaults for everything but vLLM's URL", () => {
    expect(configure({})).toMatchObject({
      modelServers: [{ baseUrl: "http://vllm/v1", weight: 1 }],
      apiKeys: [],
      allowAnonymous: false,
      retentionMs: 30 * 86_400_000,
      heartbeatMs: 5_000,
      routes: new Map(),
    });
    expect(failure(() => loadConfig({} as Variables)).message).toContain("VLLM_BASE_URL");
  });

  it("uses Open Responses for every client if it is configured to", () => {
    expect(configure({}).speaksOpenResponses).toBe(false);
    expect(configure({ OPEN_RESPONSES: "true" }).speaksOpenResponses).toBe(true);
  });

  it("checks the separation of tenants at servers if there may be several tenants", () => {
    const JWT = { JWT_ISSUER: "https://i.example", JWT_AUDIENCE: "a", JWT_JWKS_URL: "https://i.example/keys" };
    const several = [{ API_KEYS: `a:${HASH},b:${"b".repeat(64)}` }, { ADMIN_KEY: `ops:${HASH}` }, JWT];
    for (const vars of several) {
      expect(configure(vars).unsaltedServers).toBe("auto");
      expect(configure({ ...vars, UNSALTED_SERVERS: "refuse" }).unsaltedServers).toBe("refuse");
    }
    for (const vars of [{}, { API_KEYS: `a:${HASH},a:${"b".repeat(64)}` }]) {
      expect(configure({ ...vars, UNSALTED_SERVERS: "refuse" }).unsaltedServers).toBeUndefined();
    }
  });

  it("needs no URL with a binding to vLLM, which it uses", async () => {
    const asked: string[] = [];
    const VLLM = {
      fetch: async (url: string) => {
        asked.push(url);
        return new Response();
      },
    };
    const config = loadConfig({ VLLM } as unknown as Variables);
    const [server] = config.modelServers;
    await server?.fetch(`${server.baseUrl}/models`, {});
    expect(asked).toEqual(["http://vllm/v1/models"]);
  });

  it("reaches vLLM by fetch, or over a socket; a binding has no sockets", () => {
    expect(configure({}).modelServers[0]?.transport).toBe("fetch");
    for (const transport of ["fetch", "socket", "mixed"]) {
      expect(configure({ VLLM_TRANSPORT: transport }).modelServers[0]?.transport).toBe(transport);
    }
    expect(failure(() => configure({ VLLM_TRANSPORT: "tcp" })).message).toMatch(/^VLLM_TRANSPORT: /);
    const VLLM = { fetch: async () => new Response() };
    expect(failure(() => configure({ VLLM, VLLM_TRANSPORT: "socket" })).message).toMatch(
      /^VLLM_TRANSPORT: expected fetch/,
    );
    expect(configure({ VLLM, VLLM_TRANSPORT: "fetch" }).modelServers[0]?.transport).toBe("fetch");
  });

  it("treats null, workerd's value of an absent variable, as unset", () => {
    const unset = Object.fromEntries(VARIABLE_NAMES.map((name) => [name, null]));
    expect(loadConfig({ ...unset, VLLM_BASE_URL: "http://vllm/v1" } as Variables)).toMatchObject({
      heartbeatMs: 5_000,
    });
  });

  it("treats an empty variable as unset", () => {
    expect(configure({ API_KEYS: "", VLLM_API_KEY: "", HEARTBEAT_MS: "", MODEL_ALIASES: "" })).toMatchObject({
      apiKeys: [],
      modelServers: [{ apiKey: undefined }],
      heartbeatMs: 5_000,
    });
  });

  it.each<[what: string, vars: Partial<Variables>, open: string[]]>([
    ["none, with keys", { API_KEYS: `a:${HASH}` }, []],
    ["all, without", {}, [...VLLM_EXTRAS]],
    ["all, where the operator says so", { API_KEYS: `a:${HASH}`, VLLM_EXTRAS: "all" }, [...VLLM_EXTRAS]],
    ["none, where the operator says so", { VLLM_EXTRAS: "none" }, []],
    ["those that are named", { VLLM_EXTRAS: "priority, vllm_xargs" }, ["priority", "vllm_xargs"]],
    ["none by the other variable", { VLLM_EXTRAS: "none", VLLM_EXTRA_FIELDS: "priority" }, []],
  ])("lets clients send %s of vLLM's extra fields", (_, vars, open) => {
    expect(VLLM_EXTRAS.filter((field) => !configure(vars).closedFields.has(field))).toEqual(open);
  });

  it.each([
    [undefined, PLUGIN_LIST.map(({ kind }) => kind)],
    ["none", ["tool_search"]],
    ["web_search, mcp", ["tool_search", "mcp", "browser"]],
  ])("HOSTED_TOOLS=%s offers %j", (HOSTED_TOOLS, kinds) => {
    expect(configure({ HOSTED_TOOLS }).tools.offeredKinds).toEqual(new Set(kinds));
    expect(failure(() => configure({ HOSTED_TOOLS: "browser" })).message).toMatch(/^HOSTED_TOOLS: expected 'all'/);
  });

  it.each(["top_k", "all,priority", "none priority", "Priority"])(
    "refuses '%s' as a list of extra fields",
    (VLLM_EXTRAS) => {
      expect(failure(() => configure({ VLLM_EXTRAS })).message).toMatch(/^VLLM_EXTRAS: expected 'all'/);
    },
  );

  it("ignores a slash at the end of the URL", () => {
    expect(configure({ VLLM_BASE_URL: "https://gpu.example/v1//" }).modelServers[0]?.baseUrl).toBe(
      "https://gpu.example/v1",
    );
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
    ["API_KEYS", " \n, "],
    ["API_KEYS", `a:${HASH},b:${HASH.toUpperCase()}`],
    ["VLLM_BASE_URL", "http://s3cret:s3cret@vllm/v1"],
    ["VLLM_BASE_URL", "http://vllm/v1?key=s3cret"],
    ["VLLM_BASE_URL", "http://vllm/v1#s3cret"],
    ["SEARXNG_URL", "https://s3cret@search.example.com/"],
    ["TOOL_SERVERS", '{"python":"https://a:s3cret@tools.example.com/mcp"}'],
    ["VLLM_API_KEY", "s3cret s3cret"],
    ["BRAVE_API_KEY", "s3cret\u00e9"],
    ["WEBHOOK_SECRET", "whsec_s3cret"],
    ["WEBHOOK_SECRET", `whsec_${"a".repeat(33)}`],
    ["WEBHOOK_SECRET", `whsec_${"a".repeat(31)}=a`],
    ["WEBHOOK_SECRET", "a".repeat(40)],
    ["REASONING_CONTENT", "s3cret"],
    ["ENCRYPTION_KEYS", "s3cret"],
    ["ENCRYPTION_KEYS", " , "],
    ["ENCRYPTION_KEYS", `a:${"a".repeat(40)}`],
    ["ENCRYPTION_KEYS", `a:${"a".repeat(44)} a:${"b".repeat(44)}`],
    ["ENCRYPTION_KEYS", `a.b:${"a".repeat(44)}`],
    ["ENCRYPTION_KEYS", `${"a".repeat(33)}:${"a".repeat(44)}`],
    ["ENCRYPTION_KEYS", `a:${"a".repeat(43)}-`],
    ["HEARTBEAT_MS", "2147483648"],
    ["CONVERSATION_LOCK_WAIT_MS", "99999999999999999999"],
    ["VLLM_MAX_RETRIES", "9007199254740993"],
    ["RETENTION_DAYS", "36501"],
    ["MAX_REQUEST_BYTES", "9007199254740991"],
    ["MAX_OPEN_TURNS", "0"],
    ["MAX_BACKGROUND_RUNS_PER_TENANT", "0"],
    ["MAX_WEBSOCKETS_PER_TENANT", "0"],
    ["ADMIN_KEY", "s3cret"],
    ["ADMIN_KEY", `ops:${HASH.slice(1)}`],
    ["ADMIN_KEY", " , "],
    ["ADMIN_KEY", "sk-admin-s3cret"],
    ["ADMIN_KEY", `sk-admin-s3cret-${"é".repeat(40)}`],
    ["ADMIN_KEY", `sk-s3cret-${"a".repeat(40)}`],
    ["ADMIN_KEY", `ops:${HASH}:s3cret`],
    ["ADMIN_KEY", `ops:${HASH}:tenant_admin`],
    ["ADMIN_KEY", `ops:${HASH}:tenant_admin:s3cret:x`],
    ["ADMIN_KEY", `ops:${HASH}:owner:s3cret`],
    ["ADMIN_KEY", `ops:${HASH}:auditor,ops:${HASH}`],
    ["API_KEYS", `acme:${HASH}:auditor`],
    ["JWT_ROLES", '{"s3cret":"root"}'],
    ["KEY_CACHE_MS", "99"],
    ["KEY_CACHE_MS", "600001"],
    ["MODEL_PRICES", '{"m":5}'],
    ["MODEL_PRICES", '{"m":{"input":-1,"output":1}}'],
    ["MODEL_PRICES", '{"m":{"input":1,"output":1,"s3cret":1}}'],
    ["VLLM_PRIORITIES", '{"default":0.5}'],
    ["VLLM_PRIORITIES", '{"default":"s3cret"}'],
    ["JWT_ALGORITHMS", "none"],
    ["JWT_ALGORITHMS", "HS256"],
    ["JWT_ALGORITHMS", "RS256 HS512"],
    ["JWT_ALGORITHMS", " "],
    ["JWT_JWKS_URL", "s3cret"],
  ])("%s=%s is refused: the message names the variable and not its value", (name, value) => {
    const error = failure(() => configure({ [name]: value }));
    expect(error).toBeInstanceOf(ConfigError);
    expect(error.message).toMatch(new RegExp(`^${name}: `));
    expect(error.message).not.toMatch(/s3cret|aaaa/);
  });

  it("is checked as a whole: every error is named, also those between variables, each once", () => {
    const error = failure(() =>
      loadConfig({
        API_KEYS: "s3cret",
        HEARTBEAT_MS: "1",
        TOOL_SERVER_MCP_LABELS: "s3cret",
        WEBHOOK_URL: "http://s3cret/hook",
        MODEL_ALIASES: '{"a":5,"b":6}',
      } as Variables),
    );
    expect((error as ConfigError).mistakes.map((mistake) => mistake.slice(0, mistake.indexOf(":")))).toEqual([
      "MODEL_ALIASES",
      "MODEL_ALIASES",
      "TOOL_SERVER_MCP_LABELS",
      "API_KEYS",
      "HEARTBEAT_MS",
      "VLLM_BASE_URL",
      "WEBHOOK_SECRET",
      "WEBHOOK_URL",
    ]);
    // Only operators see the places of mistakes; every client may see the message.
    expect((error as ConfigError).mistakes[0]).toMatch(/^MODEL_ALIASES: 'a': /);
    expect(error.message).not.toMatch(/s3cret|'a'/);
  });

  it("names the faults of keys beside an issuer", () => {
    const issuer = { JWT_ISSUER: "https://id.acme.dev", JWT_AUDIENCE: "x", JWT_JWKS_URL: "https://id.acme.dev/jwks" };
    for (const name of ["API_KEYS", "ADMIN_KEY"]) {
      const error = failure(() => configure({ ...issuer, [name]: "s3cret" }));
      expect((error as ConfigError).mistakes).toEqual([
        expect.stringMatching(new RegExp(`^${name}: expected entries`)),
      ]);
    }
  });

  it("says how to make keys for API_KEYS", () => {
    const error = failure(() => configure({ API_KEYS: "acme:…" }));
    expect(error.message).toContain("`npm run create-key -- TENANT`");
  });

  it("requires an audience and keys for an issuer, and an issuer for these", () => {
    const issuer = { JWT_ISSUER: "https://id.acme.dev", JWT_AUDIENCE: "x", JWT_JWKS_URL: "https://id.acme.dev/jwks" };
    expect(configure(issuer).jwt).toMatchObject({ issuer: "https://id.acme.dev", algorithms: ["RS256", "ES256"] });
    for (const name of ["JWT_ISSUER", "JWT_AUDIENCE", "JWT_JWKS_URL"] as const) {
      const error = failure(() => configure({ ...issuer, [name]: undefined }));
      expect(error.message).toMatch(new RegExp(`^${name}: needed with`));
    }
  });

  it("requires a decision on shared tenants where there are tokens and keys", () => {
    const issuer = { JWT_ISSUER: "https://id.acme.dev", JWT_AUDIENCE: "x", JWT_JWKS_URL: "https://id.acme.dev/jwks" };
    for (const keys of [{ ADMIN_KEY: `ops:${HASH}` }, { API_KEYS: `acme:${HASH}` }]) {
      expect(failure(() => configure({ ...issuer, ...keys })).message).toMatch(
        /^JWT_TENANTS: needed .* shared .* own /,
      );
      expect(configure({ ...issuer, ...keys, JWT_TENANTS: "shared" }).jwt?.tenantPrefix).toBe("");
      expect(configure({ ...issuer, ...keys, JWT_TENANTS: "own" }).jwt?.tenantPrefix).toBe("jwt.");
    }
    expect(configure(issuer).jwt?.tenantPrefix).toBe("");
    expect(failure(() => configure({ JWT_TENANTS: "own" })).message).toMatch(/^JWT_ISSUER: needed with/);
    expect(failure(() => configure({ API_KEYS: `jwt.acme:${HASH}` })).message).toMatch(/^API_KEYS: /);
  });

  it.each<[string, Partial<Variables>]>([
    ["a root key", { ADMIN_KEY: `ops:${HASH}` }],
    ["an issuer", { JWT_ISSUER: "i", JWT_AUDIENCE: "a", JWT_JWKS_URL: "https://id.acme.dev/jwks" }],
  ])("with %s needs keys, and opens none of vLLM's extra fields by default", (_, vars) => {
    expect(configure({ ...vars, ALLOW_ANONYMOUS: "true" }).wantsKeys).toBe(true);
    expect([...configure(vars).closedFields.keys()]).toEqual(expect.arrayContaining([...VLLM_EXTRAS]));
  });

  it("takes a root key as its hash, with a name, or as its text", () => {
    const text = `sk-admin-${"Ab3_-".repeat(8)}`;
    const { adminKeys } = configure({ ADMIN_KEY: `ops:${HASH}, ${text}` }).keys;
    expect(adminKeys).toEqual([
      { name: "ops", role: "owner", sha256: new Uint8Array(Buffer.from(HASH, "hex")) },
      { name: "root", role: "owner", sha256: new Uint8Array(createHash("sha256").update(text).digest()) },
    ]);
  });

  it("is checked once until the deployment changes", () => {
    const env = { VLLM_BASE_URL: "ftp://vllm" } as Variables;
    const first = failure(() => loadConfig(env));
    expect(failure(() => loadConfig(env))).toBe(first);
  });

  it.each(["a".repeat(32), `${"a".repeat(43)}=`, `${"A1+/".repeat(10)}\n`])(
    "signs with a secret of base64: %j",
    (text) => {
      const webhook = { WEBHOOK_URL: "https://hooks.example.com/x", WEBHOOK_SECRET: `whsec_${text}` };
      const { secret } = configure(webhook).webhook ?? {};
      expect(secret).toEqual(new Uint8Array(Buffer.from(text.trim(), "base64")));
    },
  );

  it("encrypts with the first of its keys, each by its name", () => {
    const [first, second] = ["A1+/".repeat(11), `${"b".repeat(43)}=`];
    expect(configure({ ENCRYPTION_KEYS: `2026-11:${first},\n old:${second}\n` }).encryptionKeys).toEqual([
      { kid: "2026-11", secret: new Uint8Array(Buffer.from(first, "base64")) },
      { kid: "old", secret: new Uint8Array(Buffer.from(second, "base64")) },
    ]);
    expect(configure({}).encryptionKeys).toEqual([]);
  });

  it("leaves out the line break at the end of a key", () => {
    expect(configure({ VLLM_API_KEY: "s3cret\n" }).modelServers[0]?.apiKey).toBe("s3cret");
  });

  it.each([
    ["VLLM_BASEURL", "VLLM_BASE_URL"],
    ["API_KEY", "API_KEYS"],
    ["retention_days", "RETENTION_DAYS"],
    ["WEBHOOK_SECERT", "WEBHOOK_SECRET"],
  ])("a variable named %s is taken for a misspelt %s", (given, meant) => {
    expect(misspeltVariables([given, "HOME", "VLLM", "VLLM_BASE_URL", "PATH", "CI", "USER"])).toEqual([[given, meant]]);
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

  it("accepts vLLM's labels for the built-in tools", () => {
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

/** The port of callers. */
function sources(config: Config): KeySources {
  return { config, env: withObjects(env), waitUntil: () => {} };
}

describe("API keys", () => {
  /** SHA-256 of "test". */
  const TEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

  it.each([",", " ", "\n", ", ", "\r\n\t"])("are separated by %j", (separator) => {
    const config = configure({ API_KEYS: `a:${HASH}${separator}b:${TEST}${separator}` });
    expect(config.apiKeys.map((key) => key.tenant)).toEqual(["a", "b"]);
    expect(
      authenticate(new Request("http://gateway", { headers: { authorization: "Bearer test" } }), sources(config)),
    ).toMatchObject({ identity: { tenant: "b" } });
  });

  it("without an entry admit nobody, also with ALLOW_ANONYMOUS", () => {
    const error = failure(() => configure({ API_KEYS: " , ", ALLOW_ANONYMOUS: "true" }));
    expect(error.message).toBe("API_KEYS: expected at least one entry");
  });

  it("may have several entries for one tenant", () => {
    expect(configure({ API_KEYS: `a:${HASH},a:${HASH}` }).apiKeys).toHaveLength(1);
  });

  it("win over ALLOW_ANONYMOUS", () => {
    const config = configure({ API_KEYS: `b:${TEST}`, ALLOW_ANONYMOUS: "true" });
    expect(() => authenticate(new Request("http://gateway"), sources(config))).toThrow("API key");
    const open = sources(configure({ ALLOW_ANONYMOUS: "true" }));
    expect(authenticate(new Request("http://gateway"), open)).toMatchObject({ identity: { tenant: "local" } });
  });

  it("and salts: one tenant's salt cannot be made by another tenant's own salt", () => {
    const salts = [
      ["a", undefined],
      ["a", "b"],
      ["a", ""],
      ["ab", undefined],
      ["a\nb", undefined],
      ["b", "a"],
    ] as const;
    const made = salts.map(([tenant, own]) => tenantCacheSalt(tenant, own));
    // An empty salt counts as absent. A tenant's name has no line break (API_KEYS).
    expect(made[0]).toBe(made[2]);
    expect(new Set([made[0], made[1], made[3], made[5]]).size).toBe(4);
  });
});
