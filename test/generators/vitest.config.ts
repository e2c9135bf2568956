import { defineConfig } from "vitest/config";

/** `npm run test:generators`. A configuration of its own: what it installs is too large for `npm test`. */
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
