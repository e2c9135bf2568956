import { defineConfig } from "vitest/config";

/**
 * `npm run test:deploy`. It has a configuration of its own, because it installs packages, builds images, and needs
 * programs that few machines have.
 */
export default defineConfig({
  test: {
    name: "deploy",
    include: ["test/deploy/*.deploy.ts"],
    testTimeout: 120_000,
    hookTimeout: 1_800_000,
    // Two builds at a time would only wait for each other.
    maxWorkers: 1,
    reporters: ["verbose"],
  },
});
