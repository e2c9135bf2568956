import { GPT_OSS_WINDOW, withOutputLimit } from "@responses-edge/engines/harmony/output-limit";
import { type ApiError, contextLengthExceeded, invalidRequest } from "@responses-edge/responses-api/errors";
import { describe, expect, it } from "vitest";

/** A vLLM's check of `max_tokens`: gives how many tokens it would generate, or throws what it answers. */
type Server = (prompt: number, maxTokens: number, window: number) => number;

// In the words of the versions; recorded for 0.32.
const servers: Record<string, Server> = {
  "0.32": (prompt, maxTokens, window) => {
    if (maxTokens > window) {
      throw contextLengthExceeded(`max_tokens=${maxTokens} cannot be greater than max_model_len=${window}.`);
    }
    if (prompt > window) throw tooLong(prompt, window);
    if (prompt === window) throw invalidRequest("max_tokens", "max_tokens must be at least 1, got 0.");
    return Math.min(maxTokens, window - prompt);
  },
  "0.16": (prompt, maxTokens, window) => {
    if (maxTokens > window) {
      throw invalidRequest("max_tokens", `max_tokens=${maxTokens} cannot be greater than max_model_len=${window}.`);
    }
    if (prompt > window - maxTokens) {
      throw contextLengthExceeded(
        `This model's maximum context length is ${window} tokens. However, you requested ${maxTokens} output tokens and your prompt contains ${prompt} input tokens.`,
      );
    }
    return maxTokens;
  },
  "0.10": (prompt, maxTokens, window) => {
    if (prompt >= window) throw tooLong(prompt, window);
    if (prompt + maxTokens > window) {
      throw contextLengthExceeded(
        `'max_tokens' or 'max_completion_tokens' is too large: ${maxTokens}. This model's maximum context length is ${window} tokens and your request has ${prompt} input tokens.`,
      );
    }
    return maxTokens;
  },
};

function tooLong(prompt: number, window: number): ApiError {
  return contextLengthExceeded(
    `This model's maximum context length is ${window} tokens. However, your prompt contains ${prompt} input tokens.`,
  );
}

let used = 0;

/** A server without requests yet, and a function that asks it with a prompt of a given number of tokens. */
function start(version: string, window: number, card: number | undefined) {
  const server = `http://vllm-${used++}`;
  const asked: number[] = [];
  const counted: number[] = [];
  const ask = (prompt: number, wanted?: number) => {
    asked.length = 0;
    counted.length = 0;
    const limited = {
      server: () => server,
      model: "m",
      window: card,
      wanted,
      body: "x".repeat(prompt),
      count: async (limit: number) => {
        counted.push(limit);
        return Array.from({ length: Math.min(prompt, limit + 1) }, () => 1);
      },
    };
    return withOutputLimit(limited, async (body, maxTokens) => {
      asked.push(maxTokens);
      return servers[version]?.(body.length, maxTokens, window);
    });
  };
  return { ask, asked, counted };
}

describe.each(Object.keys(servers))("with vLLM %s", (version) => {
  describe.each([
    ["whose card tells the window", 8192],
    ["without a card", undefined],
    ["whose card is too large", 20_000],
  ])("%s", (_, card) => {
    it("an answer may have exactly the rest of the window, with one request as soon as the server is known", async () => {
      const { ask, asked } = start(version, 8192, card);
      for (const prompt of [18, 1, 4000, 8191, 500]) expect(await ask(prompt)).toBe(8192 - prompt);
      expect(asked).toHaveLength(1);
      expect(await ask(18, 100)).toBe(100);
      expect(asked).toHaveLength(1);
    });

    it("max_output_tokens beyond the rest of the window become the rest", async () => {
      const { ask } = start(version, 8192, card);
      expect(await ask(8000, 1000)).toBe(192);
      expect(await ask(8000, 192)).toBe(192);
      expect(await ask(8000, 8192)).toBe(192);
    });

    it("max_output_tokens beyond the window are a 400 that names them", async () => {
      const { ask } = start(version, 8192, card);
      await ask(18);
      await expect(ask(18, 8193)).rejects.toMatchObject({ status: 400, param: "max_output_tokens" });
    });

    it.each([8192, 8193, 100_000])("a prompt of %d tokens is a 400 that names the input", async (prompt) => {
      const { ask } = start(version, 8192, card);
      const refused = { status: 400, param: "input", code: "context_length_exceeded" };
      await expect(ask(prompt)).rejects.toMatchObject(refused);
      await expect(ask(prompt, 100)).rejects.toMatchObject(refused);
      // Nor is anything wrong learnt from it.
      expect(await ask(18)).toBe(8174);
      await expect(ask(prompt)).rejects.toMatchObject(refused);
    });
  });
});

it("a server that clamps has no prompt counted", async () => {
  const { ask, counted } = start("0.32", 8192, 8192);
  await ask(4000);
  expect(counted).toEqual([]);
});

it("a server that does not has none counted that surely fits", async () => {
  const { ask, counted } = start("0.10", 8192, 8192);
  await ask(18);
  await ask(100, 7000);
  expect(counted).toEqual([]);
});

it("gpt-oss's own window is taken of a server that names none", async () => {
  const { ask, asked } = start("0.32", GPT_OSS_WINDOW, undefined);
  await ask(18);
  expect(asked).toEqual([GPT_OSS_WINDOW]);
});

it.each(Object.keys(servers))(
  "a window larger than gpt-oss's own is used of a server %s that names it",
  async (version) => {
    const { ask } = start(version, 200_000, undefined);
    await ask(18).catch(() => undefined);
    expect(await ask(150_000)).toBeGreaterThanOrEqual(50_000);
  },
);

it("other refusals are passed on after one request", async () => {
  const refusal = invalidRequest("temperature", "temperature must be non-negative");
  let requests = 0;
  const limited = { server: () => "s", model: "m", window: 100, wanted: undefined, body: "x", count: async () => [1] };
  const asked = withOutputLimit(limited, () => {
    requests += 1;
    throw refusal;
  });
  await expect(asked).rejects.toBe(refusal);
  expect(requests).toBe(1);
});
