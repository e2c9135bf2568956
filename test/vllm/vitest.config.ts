import { defineConfig } from "vitest/config";

/** `npm run test:vllm`. This is a separate configuration, so that `npm test` never starts a model server. */
export default defineConfig({
  test: {
    name: "vllm",
    include: ["test/vllm/*.vllm.ts"],
    globalSetup: "test/vllm/announce.ts",
    // A server takes gigabytes: one engine after the other.
    fileParallelism: false,
    testTimeout: 120_000,
    reporters: ["verbose"],
  },
});
