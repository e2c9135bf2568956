import { expect } from "vitest";

/**
 * The default transport to the model server (`VLLM_TRANSPORT`) for a test file's gateways. Files of one project share
 * their processes, so each file sets its own.
 */

const e2e = (name: string) => `test/e2e/${name}.test.ts`;

/** Tests of facts that do not depend on the transport use one: the transport of `npm start`. */
const OVER_SOCKETS = [
  "test/crash/harmony-kill.test.ts",
  ...["agents-sdk", "ai-sdk", "background", "chat-answers", "context", "continuation", "conversations", "create"].map(
    e2e,
  ),
  ...["harmony", "harmony-continuation", "http", "model-output", "socket", "state", "tool-loop", "tools"].map(e2e),
];

const { testPath = "" } = expect.getState();
const isOverSockets = testPath.includes("/over-sockets/") || OVER_SOCKETS.some((file) => testPath.endsWith(`/${file}`));
if (isOverSockets) process.env.VLLM_TRANSPORT = "socket";
else delete process.env.VLLM_TRANSPORT;
