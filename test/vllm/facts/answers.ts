import { expect, it } from "vitest";
import { counting, saying, words } from "../speech.ts";
import { answerOf, expectCompleted, finalOf, type Subject, textOf, thoughtOf, typesOf } from "./subject.ts";

/** Answers, streams, chains and conversations. */
export function answers(subject: () => Subject): void {
  /** Longer than a few blocks of any cache, unlike any other prompt, and with a short answer. */
  const longInput = () => `${crypto.randomUUID()} ${words(400)} ${saying(subject().engine, { text: "Yes." })}`;

  it("an answer is complete, with separate reasoning", async () => {
    const { ask, engine, server } = subject();
    const response = await ask({ thought: "one two three four", text: words(60) });
    expectCompleted(response);
    expect(typesOf(response)).toEqual(["reasoning", "message"]);
    expect(thoughtOf(response).trim()).toBe("one two three four");
    expect(answerOf(response)).toBe(words(60));
    const { input_tokens, output_tokens, output_tokens_details, total_tokens } = response.usage ?? {};
    expect(total_tokens).toBe(Number(input_tokens) + Number(output_tokens));
    if (server.kind === "llamacpp") {
      // There, a token is a byte, and reasoning tokens are not reported.
      expect(output_tokens).toBeGreaterThan(words(60).length);
      expect(output_tokens).toBeLessThan(words(60).length + 60);
      return;
    }
    // 60 words are 120 tokens. The reasoning has four. A chat server also counts the line breaks around it.
    expect(output_tokens).toBeGreaterThan(120);
    expect(output_tokens).toBeLessThan(150);
    expect(output_tokens_details?.reasoning_tokens).toBeGreaterThanOrEqual(4);
    expect(output_tokens_details?.reasoning_tokens).toBeLessThanOrEqual(engine === "chat" ? 8 : 4);
  });

  it("a stream gives the same output, piece by piece, and is stored", async () => {
    const { stream, gateway } = subject();
    const events = await stream({ thought: "one two", text: words(30) });
    const response = finalOf(events);
    expectCompleted(response);
    expect(textOf(events).replace(/^\n+/, "")).toBe(words(30));
    expect(events.filter(({ type }) => type === "response.output_text.delta").length).toBeGreaterThan(10);
    const thoughts = events.map((event) => (event.type === "response.reasoning_text.delta" ? event.delta : ""));
    expect(thoughts.join("").trim()).toBe("one two");
    expect(await gateway.openai.responses.retrieve(response.id)).toMatchObject({
      status: "completed",
      output: response.output,
      usage: response.usage,
    });
  });

  it("characters of several tokens are complete", async () => {
    const { stream } = subject();
    const text = "🦄 and 👩‍👩‍👧‍👦, ŕ and 漢字 and 🏴󠁧󠁢󠁳󠁣󠁴󠁿.";
    const events = await stream({ text });
    expect(textOf(events).replace(/^\n+/, "")).toBe(text);
    expect(answerOf(finalOf(events))).toBe(text);
    for (const event of events)
      if (event.type === "response.output_text.delta") expect(event.delta).not.toContain("\uFFFD");
  });

  it("max_output_tokens ends an answer early", async () => {
    const response = await subject().ask({ text: words(60) }, { max_output_tokens: 40 });
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(response.usage?.output_tokens).toBe(40);
    expect(answerOf(response)).not.toBe("");
    expect(words(60).startsWith(answerOf(response))).toBe(true);
  });

  it("previous_response_id puts the history before the input, where the prefix cache has it", async () => {
    const { ask } = subject();
    const first = await ask(longInput(), { instructions: "Be brief." });
    const second = await ask("And now?", { previous_response_id: first.id, instructions: "Be brief." });
    expectCompleted(second);
    expect(answerOf(second)).toBe("You said: And now?");
    expect(second.previous_response_id).toBe(first.id);
    const before = first.usage?.input_tokens ?? 0;
    expect(second.usage?.input_tokens).toBeGreaterThan(before + 10);
    expect(first.usage?.input_tokens_details.cached_tokens).toBeLessThan(before / 2);
    expect(second.usage?.input_tokens_details.cached_tokens).toBeGreaterThan(before / 2);
  });

  it("tokens written to the prefix cache are reported if the server reports them", async () => {
    const { ask, engine, server } = subject();
    const { usage } = await ask(longInput());
    const { cache_write_tokens, cached_tokens } = usage?.input_tokens_details ?? {};
    // vLLM reports it only on the chat route.
    if (engine === "harmony" || server.kind === "llamacpp") expect(cache_write_tokens).toBe(0);
    else expect(cache_write_tokens).toBeGreaterThan(400);
    expect(Number(cache_write_tokens) + Number(cached_tokens)).toBeLessThanOrEqual(usage?.input_tokens ?? 0);
  });

  it("two continuations of one response are two branches", async () => {
    const { ask } = subject();
    const root = await ask("Hello!");
    const [east, west] = await Promise.all([
      ask("East.", { previous_response_id: root.id }),
      ask("West.", { previous_response_id: root.id }),
    ]);
    expect([answerOf(east), answerOf(west)]).toEqual(["You said: East.", "You said: West."]);
    expect(east.usage?.input_tokens).toBe(west.usage?.input_tokens);
  });

  it("a conversation has the same prompt as a chain", async () => {
    const { ask, gateway } = subject();
    const { id } = await gateway.openai.conversations.create();
    await ask("Hello!", { conversation: id });
    const turn = await ask("And now?", { conversation: id });
    const first = await ask("Hello!");
    const chained = await ask("And now?", { previous_response_id: first.id });
    expect(answerOf(turn)).toBe("You said: And now?");
    expect(turn.usage?.input_tokens).toBe(chained.usage?.input_tokens);
    const items = await Array.fromAsync(gateway.openai.conversations.items.list(id, { order: "asc" }));
    expect(items.map(({ type }) => type)).toEqual([
      "message",
      "reasoning",
      "message",
      "message",
      "reasoning",
      "message",
    ]);
  });

  it("reasoning effort none gives no reasoning if the template supports that", async () => {
    const { ask, engine } = subject();
    if (engine !== "chat") return;
    const response = await ask({ text: "Hello!" }, { reasoning: { effort: "none" } });
    expect(typesOf(response)).toEqual(["message"]);
    expect(answerOf(response)).toBe("Hello!");
  });

  it("a model that is not served is a 404 or 400 that names it", async () => {
    const { gateway } = subject();
    await expect(gateway.openai.responses.create({ model: "nope", input: "Hello!" })).rejects.toMatchObject({
      code: "model_not_found",
      param: "model",
    });
  });

  it("an image for a model without vision is a 400 that names the part, also in a count", async () => {
    const { gateway, engine } = subject();
    if (engine !== "chat") return;
    const picture = { type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo=", detail: "auto" } as const;
    const body = { model: subject().server.model, input: [{ role: "user", content: [picture] }] } as const;
    const wanted = { status: 400, param: "input[0].content[0]" };
    await expect(gateway.openai.responses.create(body as never)).rejects.toMatchObject(wanted);
    await expect(gateway.openai.responses.inputTokens.count(body as never)).rejects.toMatchObject(wanted);
  });

  it("words arrive one after another, at the model's speed", async () => {
    const { ask } = subject();
    expect(answerOf(await ask(counting(20)))).toBe(words(20));
  });
}
