import { defineConfig } from "vitest/config";

/** `npm run test:clients`. A configuration of its own: what it installs is too large for `npm test`. */
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
