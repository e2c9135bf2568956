import { defineConfig } from "vitest/config";

/**
 * `npm run test:clients`. It has a configuration of its own, because its installations are too large for `npm test`.
 */
export default defineConfig({
  test: {
    name: "clients",
    include: ["test/clients/*.clients.ts"],
    globalSetup: "test/workerd/bundle-once.ts",
    fileParallelism: false,
    testTimeout: 120_000,
    hookTimeout: 600_000,
    reporters: ["verbose"],
  },
});
