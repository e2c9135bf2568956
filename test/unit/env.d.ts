import type { Env as WorkerEnv } from "../../src/env.ts";

declare global {
  namespace Cloudflare {
    /** What `env` of "cloudflare:workers" has in tests: the Worker's own bindings. */
    interface Env extends WorkerEnv {}
  }
}
