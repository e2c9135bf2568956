import type { Variables } from "./config/index.ts";
import type { ObjectBindings, RawBindings } from "./store/objects/objects.ts";

/** The bindings that wrangler, and `serve`, give the Worker. */
export interface RawEnv extends Variables, RawBindings {}

/** The same, with objects in place of the platform's namespaces (`withObjects`). */
export interface Env extends Variables, Omit<RawBindings, keyof ObjectBindings>, ObjectBindings {}
