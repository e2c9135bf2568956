import { defineConfig } from "vitest/config";

/** `npm run test:cluster`. A configuration of its own: the S3 server is built, and leases take their time to expire. */
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
