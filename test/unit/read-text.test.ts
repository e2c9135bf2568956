import type { TextPage } from "@responses-edge/file-text";
import { describe, expect, it } from "vitest";
import { type LastLine, TASK_HEADER, type TaskLine, taskOf } from "../../src/contract/bounded-tasks.ts";
import { readText } from "../../src/store/tenant/files/read-text.ts";

type Line = TaskLine | LastLine;

const PDF = new TextEncoder().encode("%PDF-1.7\n");
const page = (number: number): TextPage => ({ page: number, text: `page ${number}` });

/** A service that gives these answers, one after another, and the files that it was asked for. */
function serviceOf(...answers: (Response | readonly (Line | string)[])[]) {
  const asked: unknown[] = [];
  const left = answers.values();
  return {
    asked,
    async fetch(_url: RequestInfo | URL, init?: RequestInit) {
      asked.push(taskOf(new Headers(init?.headers).get(TASK_HEADER)));
      const { value } = left.next();
      if (!value || value instanceof Response) return value ?? Response.error();
      return new Response(
        value.map((line) => (typeof line === "string" ? line : `${JSON.stringify(line)}\n`)).join(""),
      );
    },
  };
}

function read(service: ReturnType<typeof serviceOf>, bytes = PDF, filename = "a.pdf") {
  const about = { filename, mimeType: undefined };
  return Array.fromAsync(readText({ bytes, about, tenant: "acme", limits: { maxPages: 9 } }, service as never));
}

describe("a file that another process reads", () => {
  it("is its pages, in order", async () => {
    const service = serviceOf([page(1), page(2), { end: true }]);
    expect(await read(service)).toEqual([page(1), page(2)]);
    expect(service.asked).toEqual([{ type: "file", tenant: "acme", filename: "a.pdf", limits: { maxPages: 9 } }]);
  });

  it.each<[how: string, first: readonly (Line | string)[]]>([
    ["and its launcher says so", [page(1), { died: true }]],
    ["and its answer breaks off", [page(1)]],
    ["and nothing was read", []],
  ])("is read again when that process dies, and no page is given twice: %s", async (_, first) => {
    expect(await read(serviceOf(first, [page(1), page(2), { end: true }]))).toEqual([page(1), page(2)]);
  });

  it("is unreadable when three processes die", async () => {
    const died = [page(1), { died: true }] as const;
    const service = serviceOf(died, [{ died: true }], died, [page(1), { end: true }]);
    await expect(read(service)).rejects.toMatchObject({ name: "UnreadableFile", code: "invalid_file" });
    expect(service.asked).toHaveLength(3);
  });

  it("is unreadable as that process says", async () => {
    const unreadable = { code: "too_large", message: "The file takes too much time to read." } as const;
    await expect(read(serviceOf([page(1), { unreadable }]))).rejects.toMatchObject({
      ...unreadable,
      name: "UnreadableFile",
    });
  });

  it("is a 503 where no process starts", async () => {
    const refused = read(serviceOf(new Response(null, { status: 503 })));
    await expect(refused).rejects.toMatchObject({ status: 503, code: "file_reader_unavailable" });
  });

  it("has a name that fits into a header", async () => {
    const service = serviceOf([{ end: true }]);
    await read(service, PDF, `${"\ud800日".repeat(100_000)}.pdf`);
    const [{ filename }] = service.asked as [{ filename: string }];
    expect(filename.length).toBe(255);
    expect(filename.endsWith(".pdf")).toBe(true);
  });
});

it("a short text is read in place", async () => {
  const service = serviceOf();
  expect(await read(service, new TextEncoder().encode("short"), "a.txt")).toEqual([{ page: null, text: "short" }]);
  expect(service.asked).toEqual([]);
});
