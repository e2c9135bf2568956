import { faultOf } from "./damage.ts";
import { calling, isAlone, keyOf, noteReleased, ownerOf } from "./ownership.ts";
import { askWorker, elsewhere } from "./workers.ts";

/**
 * Routes calls from this process to an object, wherever it runs: in another worker (`workers.ts`), or in the process
 * before or after this one (`ownership.ts`).
 */

export const OBJECT_BINDINGS = [
  "HOME",
  "KEYS",
  "QUOTAS",
  "BOARD",
  "FILE_DIRECTORIES",
  "FILE_BYTES",
  "VECTOR_STORES",
  "WEBHOOKS",
  "BATCHES",
  "RESPONSE_INDEXES",
] as const;

/** The binding by which the Worker reaches objects of a class. */
export type ObjectBinding = (typeof OBJECT_BINDINGS)[number];

/** The objects of another process (`Objects`, in `hand-over.ts`). */
type OtherObjects = Fetcher & { call(call: ObjectCall): Promise<Answer> };

/** The bindings by which two self-hosted processes reach each other (`cli/serve/workerd.ts`). No other deployment has them. */
export interface OtherProcess {
  /** The objects of the other process. */
  OTHER?: OtherObjects;
  /** Its API. */
  OTHER_REQUESTS?: Fetcher;
  /** Set in a successor. */
  IS_SUCCESSOR?: string;
}

/** The header that names the object of a `fetch`, only on the sockets between processes. */
const OBJECT_HEADER = "x-object";

/** The object that a request on such a socket names. */
export function objectOf(request: Request): [binding: ObjectBinding | undefined, name: string] {
  return partsOf(decodeURIComponent(request.headers.get(OBJECT_HEADER) ?? ""));
}

/** The class and the name of an object's key (`keyOf`). */
export function partsOf(key: string): [binding: ObjectBinding | undefined, name: string] {
  const at = key.indexOf(":");
  return [OBJECT_BINDINGS.find((binding) => binding === key.slice(0, at)), key.slice(at + 1)];
}

type Stub = Record<string, (...args: unknown[]) => unknown>;
type Namespace = Pick<DurableObjectNamespace, "getByName" | "idFromName">;

/** One routed environment for each original; the objects of each class have their own. */
const made = new WeakMap<object, object>();

/** The environment with namespaces whose stubs find their object. Without another process it is the original one. */
export function routed<Env extends object>(env: Env & OtherProcess): Env {
  const { OTHER: other } = env;
  if (!other) return env;
  const before = made.get(env);
  if (before) return before as Env;
  const namespaces = env as unknown as Record<ObjectBinding, Namespace>;
  const routes = OBJECT_BINDINGS.filter((binding) => namespaces[binding]).map((binding) => [
    binding,
    routesTo(binding, namespaces[binding], other),
  ]);
  const known = { ...env, ...Object.fromEntries(routes) } as Env;
  made.set(env, known);
  return known;
}

function routesTo(binding: ObjectBinding, namespace: Namespace, other: OtherObjects): object {
  return {
    idFromName: (name: string) => namespace.idFromName(name),
    getByName: (name: string) =>
      new Proxy(
        {},
        {
          get: (_, method) =>
            // A stub is no promise.
            typeof method === "string" && method !== "then"
              ? (...args: unknown[]) => ask({ binding, name, method, args }, namespace, other)
              : undefined,
        },
      ),
  };
}

/** A call of an object. */
export interface ObjectCall {
  binding: ObjectBinding;
  name: string;
  method: string;
  args: unknown[];
}

/** Classes whose objects belong to all tenants. The names of others begin with their tenant's. */
const SHARED: readonly ObjectBinding[] = ["KEYS", "BOARD"];

async function ask(call: ObjectCall, namespace: Namespace, other: OtherObjects): Promise<unknown> {
  const { binding, name } = call;
  const worker = elsewhere(namespace, name);
  if (worker !== undefined) return askWorker(worker, call, [OBJECT_HEADER, encodeURIComponent(keyOf(binding, name))]);
  const stub = () => namespace.getByName(name) as unknown as Stub;
  try {
    return await (isAlone() ? stub()[call.method]?.(...call.args) : find(call, stub, other));
  } catch (error) {
    const tenant = SHARED.includes(binding) ? undefined : name.split(":")[0];
    throw await faultOf(error, () => ({ binding, id: namespace.idFromName(name).toString(), tenant }));
  }
}

async function find(call: ObjectCall, stub: () => Stub, other: OtherObjects): Promise<unknown> {
  const { binding, name, method, args } = call;
  const key = keyOf(binding, name);
  const request = method === "fetch" ? new Request(...(args as [Request])) : undefined;
  for (;;) {
    if ((await ownerOf(key)) === "here") {
      return calling(key, () => stub()[method]?.(...(request ? [request] : args)));
    }
    if (request) {
      const asked = new Request(request.clone() as Request);
      asked.headers.set(OBJECT_HEADER, encodeURIComponent(key));
      const answer = await other.fetch(asked as Request);
      if (answer.status !== MOVED) return answer;
    } else {
      const answer = await other.call(call);
      if ("value" in answer) return answer.value;
    }
    // The object was given up while the question was on its way.
    noteReleased(key);
  }
}

/** The answer to a call; empty if the object has been given up. */
export type Answer = { value: unknown } | Record<string, never>;

/** The status of an object that has been given up: 421 (Misdirected Request). */
export const MOVED = 421;
