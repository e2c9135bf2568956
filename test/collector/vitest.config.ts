import { defineConfig } from "vitest/config";

/** `npm run test:collector`. It has a configuration of its own, because building the collector takes minutes. */
export default defineConfig({
  test: {
    name: "collector",
    include: ["test/collector/*.collector.ts"],
    globalSetup: "test/workerd/bundle-once.ts",
    testTimeout: 120_000,
    hookTimeout: 900_000,
    reporters: ["verbose"],
  },
});
