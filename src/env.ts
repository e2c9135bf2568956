import type { Batches } from "./batches/batches.ts";
import type { Variables } from "./config/index.ts";
import type { Board } from "./store/deployment/board.ts";
import type { KeyDirectory } from "./store/deployment/keys/key-directory.ts";
import type { Home } from "./store/home/home.ts";
import type { FileBindings } from "./store/home/open-homes.ts";
import type { Quota } from "./store/limits/quota-object.ts";
import type { OtherProcess } from "./store/objects/object-routes.ts";
import type { FileObjects } from "./store/tenant/files/bindings.ts";
import type { IndexBinding } from "./store/tenant/response-index/home-index.ts";
import type { StoreObjects } from "./store/tenant/vector-stores/store-env.ts";
import type { WebhookBinding } from "./store/tenant/webhooks/announcing.ts";

/** The bindings that wrangler, and `serve`, give the Worker. */
export interface Env
  extends Variables,
    FileBindings,
    OtherProcess,
    FileObjects,
    StoreObjects,
    WebhookBinding,
    IndexBinding {
  HOME: DurableObjectNamespace<Home>;
  KEYS: DurableObjectNamespace<KeyDirectory>;
  QUOTAS: DurableObjectNamespace<Quota>;
  BOARD: DurableObjectNamespace<Board>;
  BATCHES: DurableObjectNamespace<Batches>;
}
