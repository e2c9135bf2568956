import { cloudflareTest } from "@cloudflare/vitest-plugin";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

// No fact is about time: these limits only end what hangs, also on a machine that has much else to do.
const limits = { testTimeout: 240_000, hookTimeout: 240_000 };

/** Inside workerd: pure modules and the Durable Object, with its storage. */
const inWorkerd = () =>
  cloudflareTest({
    wrangler: { configPath: "./wrangler.toml" },
    miniflare: {
      bindings: {
        VLLM_BASE_URL: "http://vllm.invalid/v1",
        TOOL_SERVERS: JSON.stringify({ python: "https://python.acme.dev/mcp" }),
        // Reasoning is sealed where a test names a tenant.
        ENCRYPTION_KEYS: `test:${"a".repeat(43)}=`,
      },
    },
  });

/** From outside, in Node: a real client against a running Worker, and the tools of the tests themselves. */
const inNode = {
  ...limits,
  // A test is often waiting for another process.
  maxWorkers: 4,
  sequence: { groupOrder: 1 },
  // Files share what they import: most of it never changes. Each starts its own servers.
  isolate: false,
  globalSetup: ["test/workerd/bundle-once.ts", "test/conformance/schemas-once.ts"],
};

/** Files that take long, longest first. */
const LONGEST = [
  "harmony-continuation",
  "vllm-facts",
  "kill",
  "hostile",
  "tool-loop",
  "code-interpreter",
  "mcp-bad-input",
  "tool-kill",
  "harmony-kill",
  "mcp",
  "harmony-recovery",
  "tool-recovery",
  "run-recovery",
  "event-log",
];

/** Begins with the files that take long, so that none is left alone at the end. Vitest knows only how long a text they are. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification) => {
      const index = LONGEST.findIndex((name) => moduleId.endsWith(`/${name}.test.ts`));
      return index < 0 ? LONGEST.length : index;
    };
    return (await super.sort(files)).sort((one, other) => place(one) - place(other));
  }
}

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        plugins: [inWorkerd()],
        test: {
          ...limits,
          name: "workerd",
          // Each loads all modules anew. Two keep two cores busy.
          maxWorkers: 2,
          isolate: false,
          include: ["test/unit/**/*.test.ts"],
          exclude: ["test/unit/fake-timers/**"],
        },
      },
      {
        // The timers are those of a whole isolate, also of what another file has left there.
        plugins: [inWorkerd()],
        test: {
          ...limits,
          name: "workerd-fake-timers",
          maxWorkers: 2,
          include: ["test/unit/fake-timers/**/*.test.ts"],
        },
      },
      { test: { ...inNode, name: "node", include: ["test/**/*.test.ts"], exclude: ["test/unit/**"] } },
      {
        // What goes wrong between the gateway and a model server that it reaches over a socket.
        test: {
          ...inNode,
          name: "node-socket",
          env: { VLLM_TRANSPORT: "socket" },
          include: ["disconnect", "model-server-wire", "recovery", "upstream-faults"].map(
            (name) => `test/e2e/${name}.test.ts`,
          ),
        },
      },
    ],
  },
});
