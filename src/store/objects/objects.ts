import { type DurableObject, env as ownEnv } from "cloudflare:workers";
import { ApiError } from "@responses-edge/responses-api/errors";
import { faultOf } from "./damage.ts";
import { type FileBindings, hasFile, inOpenObject, isOpen, livingObject } from "./open-objects.ts";
import { counted, ownPlace, ownsObjects } from "./ownership.ts";
import { objectUnreachable } from "./process-state.ts";
import {
  type ClassRow,
  keyOf,
  type NameParts,
  OBJECTS,
  type ObjectBinding,
  type ObjectName,
  type Repetition,
  textOf,
  workerOf,
} from "./registry.ts";
import { type Answer, isRetryable, type ObjectCall, type RemoteObjects } from "./rpc.ts";
import { atWorker, homeFilesOf, IS_SERVED, MOVED, OWN_WORKER, WORKERS } from "./workers.ts";

/**
 * The objects as the rest of the Worker reaches them: by stubs, whose calls find their object in whichever process it runs
 * (`placeOf`). The platform's own namespaces are used only here and by the processes' entrypoints.
 */

/** The class of each binding. Each class adds itself, beside its declaration. */
// biome-ignore lint/suspicious/noEmptyInterface: it is filled elsewhere.
export interface ObjectClasses {}

/** Methods that an object has for its platform or its process (`owned-object.ts`), and not for callers. */
type OwnMethod = keyof DurableObject | ("suspend" | "takeOver" | "close" | "reopen" | "leave");

type MethodOf<Class> = Exclude<
  { [Name in keyof Class & string]: Class[Name] extends (...args: never) => void ? Name : never }[keyof Class & string],
  OwnMethod
>;

/** A row that declares the methods of its class, all of them and no others. */
type RowOf<Class, Declared> = ClassRow & {
  readonly methods: Readonly<Record<MethodOf<Class>, Repetition>> & {
    readonly [Name in keyof Declared]: Name extends MethodOf<Class> ? Repetition : never;
  };
};

const ROWS: {
  readonly [Binding in ObjectBinding]: RowOf<ObjectClasses[Binding], (typeof OBJECTS)[Binding]["methods"]>;
} = OBJECTS;

/** A method as its callers see it. */
type Called<Method> = Method extends (...args: infer Args) => infer Answer
  ? (...args: Args) => Promise<Awaited<Answer>>
  : never;

/** The arguments of an object's `fetch`. They are not a Request, so that a call can be repeated. */
type FetchArguments = [
  url: string,
  init?: {
    method?: string;
    headers?: HeadersInit;
    body?: string | undefined;
    signal?: AbortSignal;
  },
];

/** An object as its callers see it. */
export type Stub<Binding extends ObjectBinding> = {
  readonly [Name in MethodOf<ObjectClasses[Binding]>]: Called<ObjectClasses[Binding][Name]>;
} & { fetch(...args: FetchArguments): Promise<Response> };

/** The platform's namespaces, and what `serve` adds (`cli/serve/workerd.ts`). */
export type RawBindings = Readonly<Record<ObjectBinding, DurableObjectNamespace>> & FileBindings;

/** The objects of each class. */
export type ObjectBindings = { readonly [Binding in ObjectBinding]: Objects<Binding> };

/** The objects of a class. */
export class Objects<Binding extends ObjectBinding> {
  readonly #env: RawBindings;
  readonly #binding: Binding;
  readonly #isInner: boolean;

  /** `isInner`: objects make the calls, and not the Worker. */
  constructor(env: RawBindings, binding: Binding, isInner: boolean) {
    this.#env = env;
    this.#binding = binding;
    this.#isInner = isInner;
  }

  /** The object with a name, which is created by its first call. */
  getByName(...parts: NameParts<Binding>): Stub<Binding> {
    const [tenant, key]: readonly string[] = parts;
    const object = { binding: this.#binding, tenant, key };
    return new STUBS[this.#binding](this.#env, object, this.#isInner) as unknown as Stub<Binding>;
  }

  /**
   * The instance of an object that lives in this process. Callers may only read its memory, which belongs to no request. Undefined if
   * there is none, if its calls would go to another process, or where the platform decides in which isolate it lives.
   */
  living(...parts: NameParts<Binding>): ObjectClasses[Binding] | undefined {
    const [tenant, key]: readonly string[] = parts;
    const object: ObjectName = { binding: this.#binding, tenant, key };
    if (!ownsObjects() || otherWorkerOf(object) !== undefined) return undefined;
    return livingObject(keyOf(object)) as ObjectClasses[Binding] | undefined;
  }

  /** False of a home that has no file, so that a call would create it. True of every other object. */
  mayExist(...parts: NameParts<Binding>): boolean | Promise<boolean> {
    const { HOME, HOME_FILES: files } = this.#env;
    if (this.#binding !== "HOME" || !files) return true;
    const [tenant, key]: readonly string[] = parts;
    const home: ObjectName = { binding: "HOME", tenant, key };
    const name = textOf(home);
    return isOpen(keyOf(home)) || hasFile(homeFilesOf(otherWorkerOf(home), files), HOME.idFromName(name));
  }
}

/** The class of the stubs of a class of objects: it has a method for each declared one. */
function stubClass(binding: ObjectBinding) {
  return class ObjectStub {
    readonly #env: RawBindings;
    readonly #object: ObjectName;
    readonly #isInner: boolean;

    constructor(env: RawBindings, object: ObjectName, isInner: boolean) {
      this.#env = env;
      this.#object = object;
      this.#isInner = isInner;
    }

    static {
      for (const method of ["fetch", ...Object.keys(ROWS[binding].methods)]) {
        const value = function (this: ObjectStub, ...args: unknown[]) {
          return ask(this.#env, { object: this.#object, method, args, isInner: this.#isInner });
        };
        Object.defineProperty(ObjectStub.prototype, method, { value });
      }
    }
  };
}

const BINDINGS = Object.keys(OBJECTS) as ObjectBinding[];

const STUBS = Object.fromEntries(BINDINGS.map((binding) => [binding, stubClass(binding)])) as Record<
  ObjectBinding,
  ReturnType<typeof stubClass>
>;

/** One environment for each original and each kind of caller. */
const made = { worker: new WeakMap<object, object>(), object: new WeakMap<object, object>() };

/** The environment with objects in place of the platform's namespaces, for the Worker or for an object. */
export function withObjects<Env extends RawBindings>(
  env: Env,
  caller: keyof typeof made = "worker",
): Omit<Env, ObjectBinding> & ObjectBindings {
  let known = made[caller].get(env);
  if (!known) {
    const objects = BINDINGS.filter((binding) => env[binding]).map((binding) => [
      binding,
      new Objects(env, binding, caller === "object"),
    ]);
    known = { ...env, ...Object.fromEntries(objects) } as object;
    made[caller].set(env, known);
  }
  return known as Omit<Env, ObjectBinding> & ObjectBindings;
}

/** The place of an object: this process, or the number of a worker. After a hand-over the own one's is that of the next process. */
type Place = "here" | number;

/**
 * The place of an object, for a call of another object (`isInner`) or of the Worker. A promise during a hand-over; rejects
 * with the 503 of an unreachable object if that takes too long.
 */
function placeOf(object: ObjectName, isInner: boolean): Place | Promise<Place> {
  const worker = otherWorkerOf(object);
  if (worker !== undefined) return worker;
  const own = ownPlace(isInner);
  if (own === "here") return own;
  return own instanceof Promise ? own.then((place) => (place === "here" ? place : OWN_WORKER)) : OWN_WORKER;
}

/** The worker whose share has an object; undefined for this one. */
export function otherWorkerOf(object: ObjectName): number | undefined {
  if (WORKERS === 1) return undefined;
  const namespaces = ownEnv as unknown as Record<string, DurableObjectNamespace>;
  const id = namespaces[object.binding]?.idFromName(textOf(object));
  const worker = workerOf(String(id), WORKERS);
  return worker === OWN_WORKER ? undefined : worker;
}

/** Calls an object where it is. Repeats a repeatable call if the object's process died, or handed the object over. */
export async function ask(env: RawBindings, call: ObjectCall): Promise<unknown> {
  for (let isAgain = false; ; ) {
    const at = placeOf(call.object, call.isInner);
    const place = at instanceof Promise ? await at : at;
    try {
      if (place === "here") return await askHere(env, call);
      return await atWorker(place, (process) => askRemote(process, call));
    } catch (error) {
      if (place === "here" && !ownsObjects() && isReset(error)) {
        // Where it is called by an object, that one is closed in this time.
        await ownPlace(false);
        if (!isRepeatable(call)) throw objectUnreachable();
      } else {
        const wasShared = place === "here" && (await unshare(env, call.object, error));
        if (isAgain || !(wasShared || isRetryable(error)) || !isRepeatable(call)) throw error;
        isAgain = true;
      }
    }
  }
}

/** The time for which another process has the file of an object open. Milliseconds. */
const SHARED_MS = 50;

/** Most times that an object is called again because another process has its file open. */
const MAX_SHARED = 20;

/** Calls an object of this process again as long as another process has its file open (`unshare`). */
export async function undisturbed<T>(env: RawBindings, object: ObjectName, call: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await call();
    } catch (error) {
      if (tries === MAX_SHARED || !(await unshare(env, object, error))) throw error;
    }
  }
}

/**
 * Tells whether an error may be that of a file which another process has open, too, for a moment, because its alarm rings after a
 * hand-over (`owned-object.ts`), and waits for the end of that. SQLite's lock is taken then, or its index is that of a file
 * which was removed meanwhile: only a new instance of the object gets another one.
 */
async function unshare(env: RawBindings, object: ObjectName, error: unknown): Promise<boolean> {
  const [, code] = (IS_SERVED && error instanceof Error && /SQLITE_(BUSY|IOERR_SHORT_READ)/.exec(error.message)) || [];
  if (code === undefined) return false;
  const stub = stubOf<{ reopen(): Promise<void> }>(env, object);
  if (code === "IOERR_SHORT_READ") await stub.reopen().catch(() => {});
  await scheduler.wait(SHARED_MS);
  return true;
}

/** Tells whether an instance of an object was ended, and its call with it. */
function isReset(error: unknown): boolean {
  return typeof error === "object" && error !== null && "durableObjectReset" in error;
}

function isRepeatable({ object, method }: ObjectCall): boolean {
  const { methods }: ClassRow = ROWS[object.binding];
  return method === "fetch" || methods[method] === "repeatable";
}

/** Calls an object of this process. */
export async function askHere(env: RawBindings, call: ObjectCall): Promise<unknown> {
  const { object, method } = call;
  const { binding, tenant } = object;
  const name = textOf(object);
  const stub = env[binding].getByName(name) as unknown as Record<string, (...args: unknown[]) => unknown>;
  const asked = () => stub[method]?.(...call.args);
  try {
    if (env.OPEN_FILES === undefined) return await counted(asked);
    return await inOpenObject(env, { key: keyOf(object), name: object, isInner: call.isInner, call: asked });
  } catch (error) {
    if (!ownsObjects()) throw error;
    throw await faultOf(error, () => ({ binding, id: env[binding].idFromName(name).toString(), tenant }));
  }
}

/** The platform's stub of an object, which must run here. */
export function stubOf<Stub>(env: RawBindings, object: ObjectName): Stub {
  return env[object.binding].getByName(textOf(object)) as unknown as Stub;
}

/** The header that names the object of a `fetch`, only on the sockets between processes. */
const OBJECT_HEADER = "x-object";

/** The status of an object that the process has handed over: Misdirected Request. */
const MOVED_STATUS = 421;

/** Calls an object in another process; `MOVED` if that has handed it over. */
async function askRemote(other: RemoteObjects, call: ObjectCall): Promise<unknown> {
  const { object, isInner } = call;
  if (call.method === "fetch") {
    const [url, init] = call.args as FetchArguments;
    const headers = new Headers(init?.headers);
    headers.set(OBJECT_HEADER, encodeURIComponent(JSON.stringify({ object, isInner })));
    const answer = await other.fetch(url, { ...init, headers });
    return answer.status === MOVED_STATUS ? MOVED : answer;
  }
  const answer = await other.call(call);
  if (answer.error) throw new ApiError(answer.error);
  return answer.isMoved ? MOVED : answer.value;
}

/** Tells whether this process runs an object of its worker, once a hand-over has decided it. */
async function isHere({ object, isInner }: Pick<ObjectCall, "object" | "isInner">): Promise<boolean> {
  return (await placeOf(object, isInner)) === "here";
}

/** Answers a call of another process. */
export async function answerCall(env: RawBindings, call: ObjectCall): Promise<Answer> {
  try {
    return (await isHere(call)) ? { value: await ask(env, call) } : { isMoved: true };
  } catch (error) {
    if (error instanceof ApiError) return { error: error.toFields() };
    throw error;
  }
}

/** The same for a `fetch`. */
export async function answerFetch(env: RawBindings, request: Request): Promise<Response> {
  const said = JSON.parse(decodeURIComponent(request.headers.get(OBJECT_HEADER) ?? "null")) as Pick<
    ObjectCall,
    "object" | "isInner"
  > | null;
  if (!said) return new Response(null, { status: 404 });
  const { url, method, headers, signal } = request;
  if (!(await isHere(said))) return new Response(null, { status: MOVED_STATUS });
  const init = { method, headers, signal, body: (await request.text()) || undefined };
  return (await ask(env, { ...said, method: "fetch", args: [url, init] })) as Response;
}
