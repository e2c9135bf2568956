import type { Variables } from "./config.ts";
import type { Board } from "./store/board.ts";
import type { Home } from "./store/home.ts";

/** What wrangler binds to the Worker. */
export interface Env extends Variables {
  HOME: DurableObjectNamespace<Home>;
  BOARD: DurableObjectNamespace<Board>;
}
