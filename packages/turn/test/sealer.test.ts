import { MAX_SEALED_LENGTH } from "@responses-edge/responses-api/items/reasoning";
import { createSealer, type EncryptionKey, MAX_INFLATION } from "@responses-edge/turn/sealed-content/sealer";
import type { Sealer } from "@responses-edge/turn/sealed-content/sealing";
import fc from "fast-check";
import { describe, expect, it } from "vitest";

const OLD = key("old", 1);
const NEW = key("2026-11", 2);

function key(kid: string, byte: number): EncryptionKey {
  return { kid, secret: new Uint8Array(32).fill(byte) };
}

/** The sealer of a tenant and a model. */
function sealer({ keys = [OLD], tenant = "acme", model = "gpt-oss" } = {}): Sealer {
  const made = createSealer(keys, tenant, model);
  if (!made) throw new Error("Expected a sealer.");
  return made;
}

/** Any number of characters of base64url, and invalid ones among them. */
const BLOB_CHARACTER = fc.constantFrom(
  ..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/ \n\u00e9",
);

describe("a sealed payload", () => {
  it("is opened unchanged, for any JSON, and its sealed form reveals nothing", () => {
    const one = sealer();
    fc.assert(
      fc.property(fc.jsonValue(), (payload) => {
        const json: unknown = JSON.parse(JSON.stringify(payload));
        const blob = one.seal("reasoning", payload);
        expect(blob).toMatch(/^re1\.old\.[A-Za-z0-9_-]+$/);
        expect(one.open("reasoning", blob)).toEqual({ payload: json });
      }),
    );
  });

  it("is another blob each time", () => {
    const one = sealer();
    const blobs = Array.from({ length: 100 }, () => one.seal("reasoning", "the same"));
    expect(new Set(blobs).size).toBe(100);
  });

  it("is deflated where that pays, and never so much that little sent makes much work", () => {
    const one = sealer();
    const words = Array.from({ length: 2_000 }, (_, index) => ((index * 7919) % 100_003).toString(36)).join(" ");
    const text = one.seal("reasoning", words);
    expect(text.length).toBeLessThan(words.length);
    expect(one.open("reasoning", text)).toEqual({ payload: words });
    const dull = "a".repeat(100_000);
    const blob = one.seal("reasoning", dull);
    expect(blob.length * MAX_INFLATION).toBeGreaterThan(dull.length);
    expect(one.open("reasoning", blob)).toEqual({ payload: dull });
  });

  it("does not decrypt once it was changed: 10,000 mutations", () => {
    const one = sealer();
    const secret = "the quick brown fox ".repeat(20);
    const blobs = [one.seal("reasoning", secret), one.seal("reasoning", { ids: [200_005, 1, 2, 3] })];
    const mutation = fc.record({
      blob: fc.constantFrom(...blobs),
      at: fc.nat({ max: 1_000 }),
      take: fc.nat({ max: 3 }),
      put: fc.string({ unit: BLOB_CHARACTER, maxLength: 3 }),
    });
    let changed = 0;
    fc.assert(
      fc.property(mutation, ({ blob, at, take, put }) => {
        const place = at % (blob.length + 1);
        const mutated = blob.slice(0, place) + put + blob.slice(place + take);
        if (mutated === blob) return;
        changed += 1;
        expect(one.open("reasoning", mutated)).toEqual({
          reason: expect.stringMatching(/^(organization_mismatch|unreadable)$/),
        });
      }),
      { numRuns: 11_000 },
    );
    expect(changed).toBeGreaterThan(10_000);
  });

  it("is cut anywhere, and opened nowhere", () => {
    const one = sealer();
    const blob = one.seal("compaction", ["a", "b"]);
    for (let length = 0; length < blob.length; length += 1) {
      expect(one.open("compaction", blob.slice(0, length)).reason).toBeDefined();
      expect(one.open("compaction", blob.slice(length + 1)).reason).toBeDefined();
    }
  });

  it("of another tenant fails its authentication; of another model it is distinguished from that", () => {
    const blob = sealer().seal("reasoning", "thoughts");
    expect(sealer({ tenant: "other" }).open("reasoning", blob)).toEqual({ reason: "organization_mismatch" });
    expect(sealer({ model: "qwen" }).open("reasoning", blob)).toEqual({ reason: "model_mismatch" });
    expect(sealer({ tenant: "other", model: "qwen" }).open("reasoning", blob).reason).toBe("organization_mismatch");
  });

  it("is bound to its purpose, and to the name of its key", () => {
    const blob = sealer().seal("reasoning", "thoughts");
    expect(sealer().open("compaction", blob)).toEqual({ reason: "organization_mismatch" });
    // The same secret under another name does not open it, because the name is authenticated, too.
    const renamed = { ...OLD, kid: "new" };
    const moved = blob.replace("re1.old.", "re1.new.");
    expect(sealer({ keys: [renamed] }).open("reasoning", moved)).toEqual({ reason: "organization_mismatch" });
  });

  it.each([
    ["nothing", ""],
    ["OpenAI's own", "gAAAAABpX0fQ7vZs"],
    ["one of a later version", `re2.old.${"A".repeat(48)}`],
    ["one of a key that is gone", `re1.unknown.${"A".repeat(48)}`],
    ["one of no key", `re1.__proto__.${"A".repeat(48)}`],
    ["one without content", "re1.old."],
    ["one with a key's name without end", `re1.${"a".repeat(1_000_000)}.AAAA`],
    ["one that is too long", `re1.old.${"A".repeat(MAX_SEALED_LENGTH)}`],
  ])("is not %s", (_, blob) => {
    expect(sealer().open("reasoning", blob).reason).toBe("unreadable");
  });
});

describe("keys", () => {
  it("rotate: the first seals, all open, and one that is gone opens nothing", () => {
    const before = sealer().seal("reasoning", "before");
    const rotated = sealer({ keys: [NEW, OLD] });
    const after = rotated.seal("reasoning", "after");
    expect(after).toMatch(/^re1\.2026-11\./);
    expect(rotated.open("reasoning", before)).toEqual({ payload: "before" });
    expect(rotated.open("reasoning", after)).toEqual({ payload: "after" });
    expect(sealer({ keys: [NEW] }).open("reasoning", before)).toEqual({ reason: "unreadable" });
    expect(sealer({ keys: [NEW] }).open("reasoning", after)).toEqual({ payload: "after" });
  });

  it("none make no sealer", () => {
    expect(createSealer([], "acme", "gpt-oss")).toBeUndefined();
  });

  it("of the first version stay readable, because clients have them", () => {
    const kept =
      "re1.old.BpSL0lK3lR9-9gc_tbQxQQ4DVN5M7DOvKpG5o1-4RVt7r3bS2WfMsduKd3teJnMv7U0fjTrloKdKuNyZclhUBOQ5K1Mp4Tv4XqjQ";
    expect(sealer().open("reasoning", kept)).toEqual({ payload: { kept: "since the first version" } });
  });
});
