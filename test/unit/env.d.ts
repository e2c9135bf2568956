import type { RawEnv } from "../../src/env.ts";
import type {} from "../../src/index.ts";
import type { ObjectClasses } from "../../src/store/objects/objects.ts";

type Namespaces = { readonly [Binding in keyof ObjectClasses]: DurableObjectNamespace<ObjectClasses[Binding]> };

declare global {
  namespace Cloudflare {
    /** The type of `env` of "cloudflare:workers" in tests: the Worker's own bindings. */
    interface Env extends Omit<RawEnv, keyof ObjectClasses>, Namespaces {}
  }
}
