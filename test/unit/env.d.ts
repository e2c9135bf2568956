import type { Env as WorkerEnv } from "../../src/env.ts";

declare global {
  namespace Cloudflare {
    /** The type of `env` of "cloudflare:workers" in tests: the Worker's own bindings. */
    interface Env extends WorkerEnv {}
  }
}
