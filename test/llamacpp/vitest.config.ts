import { defineConfig } from "vitest/config";

/** `npm run test:llamacpp`. A configuration of its own, so that `npm test` never starts a model server. */
export default defineConfig({
  test: {
    name: "llamacpp",
    include: ["test/llamacpp/*.llamacpp.ts"],
    globalSetup: "test/llamacpp/announce.ts",
    // The servers share the machine: one file after the other.
    fileParallelism: false,
    testTimeout: 60_000,
    reporters: ["verbose"],
  },
});
