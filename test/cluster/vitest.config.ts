import { defineConfig } from "vitest/config";

/**
 * `npm run test:cluster`. It has a configuration of its own, because it builds the S3 server, and leases take time to
 * expire.
 */
export default defineConfig({
  test: {
    name: "cluster",
    include: ["test/cluster/*.cluster.ts"],
    globalSetup: "test/workerd/bundle-once.ts",
    testTimeout: 300_000,
    hookTimeout: 900_000,
    reporters: ["verbose"],
  },
});
