import { cloudflareTest } from "@cloudflare/vitest-plugin";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    // Most of a test's time is waiting for another process.
    maxWorkers: 2,
    // Some facts are about time, and a shared machine sometimes stands still for seconds.
    retry: process.env.CI ? 2 : 0,
    projects: [
      {
        // Inside workerd: pure modules and the Durable Object, with its storage.
        plugins: [
          cloudflareTest({
            wrangler: { configPath: "./wrangler.toml" },
            miniflare: { bindings: { VLLM_BASE_URL: "http://vllm.invalid/v1" } },
          }),
        ],
        test: { name: "workerd", include: ["test/unit/**/*.test.ts"], testTimeout: 90_000, hookTimeout: 120_000 },
      },
      {
        // From outside, in Node: a real client against a running Worker, and the tools of the tests themselves.
        test: { name: "node", include: ["test/**/*.test.ts"], exclude: ["test/unit/**"], testTimeout: 90_000, hookTimeout: 120_000 },
      },
    ],
  },
});
