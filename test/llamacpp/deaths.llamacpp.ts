import { describe } from "vitest";
import { background } from "../vllm/facts/background.ts";
import { deaths } from "../vllm/facts/deaths.ts";
import { kills } from "./facts/kills.ts";
import { factsAboutLlamacpp } from "./real-server.ts";

// The model is slow, so that kills come in the middle of an answer.
factsAboutLlamacpp("slow", (subject, run) => {
  describe("runs", () => background(subject, run));
  describe("kills", () => kills(subject, run));
  describe("deaths", () => deaths(subject, run));
});
