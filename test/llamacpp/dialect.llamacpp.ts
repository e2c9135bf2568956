import { describe } from "vitest";
import { choices } from "./facts/choices.ts";
import { customTools } from "./facts/custom-tools.ts";
import { errors } from "./facts/errors.ts";
import { options } from "./facts/options.ts";
import { schemas } from "./facts/schemas.ts";
import { state } from "./facts/state.ts";
import { tenants } from "./facts/tenants.ts";
import { factsAboutLlamacpp } from "./real-server.ts";

// The differences of llama.cpp from vLLM.
factsAboutLlamacpp("fast", (subject) => {
  describe("choices", () => choices(subject));
  describe("custom tools", () => customTools(subject));
  describe("schemas", () => schemas(subject));
  describe("options", () => options(subject));
  describe("errors", () => errors(subject));
  describe("state", () => state(subject));
  describe("tenants", () => tenants(subject));
});
