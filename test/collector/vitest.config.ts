import { defineConfig } from "vitest/config";

/** `npm run test:collector`. A configuration of its own: the collector is built, which takes minutes. */
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
