import { describe } from "vitest";
import { answers } from "../vllm/facts/answers.ts";
import { batches } from "../vllm/facts/batches.ts";
import { compaction } from "../vllm/facts/compaction.ts";
import { decisions } from "../vllm/facts/decisions.ts";
import { formats } from "../vllm/facts/formats.ts";
import { functions } from "../vllm/facts/functions.ts";
import { grammars } from "../vllm/facts/grammars.ts";
import { moderation } from "../vllm/facts/moderation.ts";
import { passed } from "../vllm/facts/passed.ts";
import { steering } from "../vllm/facts/steering.ts";
import { tokens } from "../vllm/facts/tokens.ts";
import { contextWindow } from "../vllm/facts/window.ts";
import { factsAboutLlamacpp } from "./real-server.ts";

// The facts that llama.cpp shares with vLLM.
factsAboutLlamacpp("fast", (subject, run) => {
  describe("answers", () => answers(subject));
  describe("functions", () => functions(subject));
  describe("grammars", () => grammars(subject));
  describe("formats", () => formats(subject));
  describe("tokens", () => tokens(subject));
  describe("the window", () => contextWindow(subject));
  describe("usage of passed-on requests", () => passed(subject));
  describe("compaction", () => compaction(subject));
  describe("decisions", () => decisions(subject));
  describe("moderation", () => moderation(subject));
  describe("batches", () => batches(subject));
  describe("steering", () => steering(subject, run));
});
