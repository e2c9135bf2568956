import { defineConfig } from "vitest/config";

/** `npm run test:llamacpp`. It has a configuration of its own, so that `npm test` never starts a model server. */
export default defineConfig({
  test: {
    name: "llamacpp",
    include: ["test/llamacpp/*.llamacpp.ts"],
    globalSetup: "test/llamacpp/announce.ts",
    // The files run one after the other, because the servers share the machine.
    fileParallelism: false,
    testTimeout: 60_000,
    reporters: ["verbose"],
  },
});
