import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, streamText, tool } from "ai";
import { afterAll, beforeAll, beforeEach, expect, it, vi } from "vitest";
import { z } from "zod";
import { GPT_OSS } from "./harmony-support.ts";
import { type Gateway, startGateway } from "./support.ts";

/** The AI SDK as its users have it, with a tool of their own. It shows summaries, and keeps what is encrypted. */

let gateway: Gateway;
beforeAll(async () => {
  gateway = await startGateway({ ENCRYPTION_KEYS: `k1:${Buffer.alloc(32, 7).toString("base64")}` });
});
afterAll(() => gateway.close());
beforeEach(() => {
  gateway.vllm.simulator.requests.length = 0;
});
