import { defineConfig } from "vitest/config";

/**
 * `npm run test:generators`. It has a configuration of its own, because its installations are too large for `npm test`.
 */
export default defineConfig({
  test: {
    name: "generators",
    include: ["test/generators/*.generators.ts"],
    globalSetup: "test/workerd/bundle-once.ts",
    fileParallelism: false,
    testTimeout: 900_000,
    hookTimeout: 600_000,
    reporters: ["verbose"],
  },
});
