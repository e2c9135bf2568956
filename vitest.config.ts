import { fileURLToPath } from "node:url";
import { cloudflareTest } from "@cloudflare/vitest-plugin";
import { defineConfig } from "vitest/config";
import { buildConsole } from "./packages/console/build.js";
import { buildVocabulary } from "./packages/engines/build.js";
import { buildPdfReader } from "./packages/file-text/build.js";
import { chromium } from "./test/console/chromium.ts";
import { LongestFirst } from "./test/longest-first.ts";
import { useMemoryFolder } from "./test/memory-folder.ts";

useMemoryFolder();

// Processes of one test run load the same modules, and the program's are TypeScript: Node compiles each once (it knows by its text).
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL("node_modules/.cache/node", import.meta.url));

// workerd's tests import the Worker, and that the page. Whoever gives a bundle has just built both for it.
if (!process.env.RESPONSES_EDGE_TEST_BUNDLE) {
  await buildConsole();
  buildPdfReader();
  buildVocabulary();
}

/** No fact is about time: these limits only end what hangs, also on a machine that has much else to do. */
const LIMITS = { testTimeout: 240_000, hookTimeout: 240_000, expect: { poll: { timeout: 120_000 } } };

/** The projects in Node are one queue: vitest makes it so where they have the same group and as many workers. */
const shared = {
  ...LIMITS,
  // A test is often waiting: for another process, or for a timer.
  maxWorkers: 8,
  sequence: { groupOrder: 1 },
};

/** The projects that compute, inside workerd and in a browser, are another queue, and the first. */
const computing = {
  ...LIMITS,
  // Each worker loads the whole Worker anew, or starts a browser. One of them mostly waits.
  maxWorkers: 4,
  sequence: { groupOrder: 0 },
  isolate: false,
};

/** Inside workerd: pure modules and the Durable Object, with its storage. */
const inWorkerd = () =>
  cloudflareTest({
    wrangler: { configPath: "./wrangler.toml" },
    miniflare: {
      // The modules come over a WebSocket: compressing them would cost more than it saves.
      compatibilityFlags: ["no_web_socket_compression"],
      bindings: {
        VLLM_BASE_URL: "http://vllm.invalid/v1",
        UPSTREAM_DIALECT: "vllm",
        // Tests of many deaths have many runs at once.
        MAX_OPEN_TURNS: "10000",
        TOOL_SERVERS: JSON.stringify({ python: "https://python.acme.dev/mcp" }),
        // Reasoning is sealed where a test names a tenant.
        ENCRYPTION_KEYS: `test:${"a".repeat(43)}=`,
      },
      r2Buckets: ["FILES_OF_TESTS"],
      workerLoaders: { PROGRAM_LOADER: {} },
    },
  });

/** From outside, in Node: a real client against a running Worker, and the tools of the tests themselves. */
const inNode = {
  ...shared,
  // Most of what a test makes is garbage at once: a larger young generation collects it in a third of the time.
  execArgv: ["--max-semi-space-size=32"],
  // Files share what they import: most of it never changes.
  isolate: false,
  // Node runs TypeScript itself, as it does the program; no file is transformed for it.
  experimental: { viteModuleRunner: false, nodeLoader: false },
  globalSetup: ["test/workerd/bundle-once.ts", "test/conformance/schemas-once.ts"],
};

/** The console, in a real browser: one for all files of a worker. */
const inBrowser = {
  test: {
    ...inNode,
    ...computing,
    name: "browser",
    globalSetup: ["test/workerd/bundle-once.ts"],
    include: ["test/console/**/*.test.ts"],
  },
};
if (!chromium)
  console.warn(
    "Left out: the console's tests. They need Chromium: apt-get install chromium-headless-shell, or CHROMIUM=/its/path.",
  );

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        plugins: [inWorkerd()],
        test: {
          ...computing,
          name: "workerd",
          include: ["test/unit/**/*.test.ts", "packages/*/test/**/*.test.ts"],
          exclude: ["**/test/**/fake-timers/**", "packages/*/test/node/**"],
        },
      },
      {
        // The timers are those of a whole isolate: none of these files leaves anything behind, as homes that live on do.
        plugins: [inWorkerd()],
        test: {
          ...computing,
          name: "workerd-fake-timers",
          include: ["test/unit/fake-timers/**/*.test.ts", "packages/*/test/fake-timers/**/*.test.ts"],
        },
      },
      {
        test: {
          ...inNode,
          name: "node",
          include: ["test/**/*.test.ts", "packages/*/test/node/**/*.test.ts"],
          exclude: ["test/unit/**", "test/console/**"],
          setupFiles: ["test/workerd/transport.ts"],
        },
      },
      ...(chromium ? [inBrowser] : []),
    ],
  },
});
