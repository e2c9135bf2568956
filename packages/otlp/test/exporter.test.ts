import { Exporter } from "@responses-edge/otlp";
import { expect, it } from "vitest";

it("sends data that arrives during a short export after it, without another flush", async () => {
  const waiting = ["a", "b"];
  const sent: string[] = [];
  const first = Promise.withResolvers<void>();
  const pending: Promise<unknown>[] = [];
  const host = { isBrief: true, waitUntil: (promise: Promise<unknown>) => void pending.push(promise) };
  const exporter = new Exporter({
    target: {
      url: "http://collector.test",
      headers: {},
      contentType: "application/x-ndjson",
      fetch: async (_url, init) => {
        sent.push(String(init?.body));
        await first.promise;
        return new Response(null, { status: 204 });
      },
    },
    timeoutMs: 60_000,
    take: () => waiting.shift(),
    onDropped: () => {},
    onFailed: () => {},
  });
  exporter.flush(host);
  exporter.flush(host);
  expect(sent).toEqual(["a"]);
  first.resolve();
  await Promise.all(pending);
  expect(sent).toEqual(["a", "b"]);
});
