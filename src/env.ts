import type { Batches } from "./batches/batches.ts";
import type { Variables } from "./config/index.ts";
import type { Board } from "./store/board.ts";
import type { FileObjects } from "./store/files/bindings.ts";
import type { Home } from "./store/home.ts";
import type { KeyDirectory } from "./store/keys/key-directory.ts";
import type { OtherProcess } from "./store/object-routes.ts";
import type { FileBindings } from "./store/open-homes.ts";
import type { Quota } from "./store/quota/quota-object.ts";
import type { IndexBinding } from "./store/response-index/home-index.ts";
import type { StoreObjects } from "./store/vector-stores/store-env.ts";
import type { WebhookBinding } from "./store/webhooks/announcing.ts";

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
