import { describe } from "vitest";
import { answers } from "../vllm/facts/answers.ts";
import { compaction } from "../vllm/facts/compaction.ts";
import { formats } from "../vllm/facts/formats.ts";
import { functions } from "../vllm/facts/functions.ts";
import { grammars } from "../vllm/facts/grammars.ts";
import { passed } from "../vllm/facts/passed.ts";
import { tokens } from "../vllm/facts/tokens.ts";
import { contextWindow } from "../vllm/facts/window.ts";
import { factsAboutLlamacpp } from "./real-server.ts";

// What holds for vLLM as well: the same facts.
factsAboutLlamacpp("fast", (subject) => {
  describe("answers", () => answers(subject));
  describe("functions", () => functions(subject));
  describe("grammars", () => grammars(subject));
  describe("formats", () => formats(subject));
  describe("tokens", () => tokens(subject));
  describe("the window", () => contextWindow(subject));
  describe("what is passed on is counted", () => passed(subject));
  describe("compaction", () => compaction(subject));
});
