import { cloudflareTest } from "@cloudflare/vitest-plugin";
import { defineConfig } from "vitest/config";

// No fact is about time: these limits only end what hangs, also on a machine that has much else to do.
const limits = { testTimeout: 240_000, hookTimeout: 240_000 };

export default defineConfig({
  test: {
    // Most of a test's time is waiting for another process.
    maxWorkers: 4,
    projects: [
      {
        // Inside workerd: pure modules and the Durable Object, with its storage.
        plugins: [
          cloudflareTest({
            wrangler: { configPath: "./wrangler.toml" },
            miniflare: { bindings: { VLLM_BASE_URL: "http://vllm.invalid/v1" } },
          }),
        ],
        test: { ...limits, name: "workerd", include: ["test/unit/**/*.test.ts"] },
      },
      {
        // From outside, in Node: a real client against a running Worker, and the tools of the tests themselves.
        test: {
          ...limits,
          name: "node",
          // Files share what they import: most of it never changes. Each starts its own servers.
          isolate: false,
          globalSetup: "test/workerd/bundle-once.ts",
          include: ["test/**/*.test.ts"],
          exclude: ["test/unit/**"],
        },
      },
    ],
  },
});
