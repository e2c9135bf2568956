import type { DurableObject } from "cloudflare:workers";
import { ApiError } from "@responses-edge/responses-api/errors";
import { faultOf } from "./damage.ts";
import { type FileBindings, inOpenHome, mayExist } from "./open-homes.ts";
import { calling, isAlone, keyOf, noteReleased } from "./ownership.ts";
import { placeOf } from "./placement.ts";
import {
  type ClassRow,
  type NameParts,
  nameOf,
  OBJECTS,
  type ObjectBinding,
  type ObjectName,
  type Repetition,
  textOf,
} from "./registry.ts";
import { type Answer, isRetryable, type ObjectCall, type RemoteObjects } from "./rpc.ts";
import { atWorker } from "./workers.ts";

/**
 * The objects as the rest of the Worker reaches them: by stubs, whose calls find their object in whichever process it runs
 * (`placement.ts`). The platform's own namespaces are used only here and by the processes' entrypoints.
 */

/** The class of each binding. Each class adds itself, beside its declaration. */
// biome-ignore lint/suspicious/noEmptyInterface: it is filled elsewhere.
export interface ObjectClasses {}

/** Methods that an object has for its platform or its process (`owned-object.ts`), and not for callers. */
type OwnMethod = keyof DurableObject | ("giveUp" | "adopt" | "during" | "counted" | "mayRing");

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
  init?: { method?: string; headers?: HeadersInit; body?: string | undefined; signal?: AbortSignal },
];

/** An object as its callers see it. */
export type Stub<Binding extends ObjectBinding> = {
  readonly [Name in MethodOf<ObjectClasses[Binding]>]: Called<ObjectClasses[Binding][Name]>;
} & { fetch(...args: FetchArguments): Promise<Response> };

/** The platform's namespaces, and the bindings by which two self-hosted processes reach each other (`cli/serve/workerd.ts`). */
export type RawBindings = Readonly<Record<ObjectBinding, DurableObjectNamespace>> &
  FileBindings & {
    /** The objects of the other process. */
    readonly OTHER?: RemoteObjects;
    /** Its API. */
    readonly OTHER_REQUESTS?: Fetcher;
    /** Set in a successor. */
    readonly IS_SUCCESSOR?: string;
  };

/** The objects of each class. */
export type ObjectBindings = { readonly [Binding in ObjectBinding]: Objects<Binding> };

/** The objects of a class. */
export class Objects<Binding extends ObjectBinding> {
  readonly #env: RawBindings;
  readonly #binding: Binding;

  constructor(env: RawBindings, binding: Binding) {
    this.#env = env;
    this.#binding = binding;
  }

  /** The object with a name, which is created by its first call. */
  getByName(...parts: NameParts<Binding>): Stub<Binding> {
    return new STUBS[this.#binding](this.#env, this.#name(parts)) as unknown as Stub<Binding>;
  }

  /** False of a home that has no file, so that a call would create it. True of every other object. */
  mayExist(...parts: NameParts<Binding>): boolean | Promise<boolean> {
    return this.#binding !== "HOME" || mayExist(this.#env, this.#name(parts));
  }

  #name([tenant, key]: readonly string[]): ObjectName {
    return { binding: this.#binding, tenant, key };
  }
}

/** The class of the stubs of a class of objects: it has a method for each declared one. */
function stubClass(binding: ObjectBinding) {
  return class ObjectStub {
    readonly #env: RawBindings;
    readonly #object: ObjectName;

    constructor(env: RawBindings, object: ObjectName) {
      this.#env = env;
      this.#object = object;
    }

    static {
      for (const method of ["fetch", ...Object.keys(ROWS[binding].methods)]) {
        const value = function (this: ObjectStub, ...args: unknown[]) {
          return ask(this.#env, { object: this.#object, method, args });
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

/** One environment for each original. */
const made = new WeakMap<object, object>();

/** The environment with objects in place of the platform's namespaces. */
export function withObjects<Env extends RawBindings>(env: Env): Omit<Env, ObjectBinding> & ObjectBindings {
  let known = made.get(env);
  if (!known) {
    const objects = BINDINGS.filter((binding) => env[binding]).map((binding) => [binding, new Objects(env, binding)]);
    known = { ...env, ...Object.fromEntries(objects) } as object;
    made.set(env, known);
  }
  return known as Omit<Env, ObjectBinding> & ObjectBindings;
}

/** Calls an object where it is. Repeats a repeatable call once if the object's process died. */
export async function ask(env: RawBindings, call: ObjectCall): Promise<unknown> {
  for (let isAgain = false; ; ) {
    const at = placeOf(call.object);
    const place = at instanceof Promise ? await at : at;
    try {
      if (place === "here") return await askHere(env, call);
      const remote = (other: RemoteObjects) => askRemote(other, call);
      const answer = await (typeof place === "number" ? atWorker(place, remote) : remote(env.OTHER as RemoteObjects));
      if (answer) return answer.value;
      // The object was given up while the call was on its way.
      noteReleased(keyOf(call.object.binding, textOf(call.object)));
    } catch (error) {
      if (isAgain || !isRetryable(error) || !isRepeatable(call)) throw error;
      isAgain = true;
    }
  }
}

function isRepeatable({ object, method }: ObjectCall): boolean {
  const { methods }: ClassRow = ROWS[object.binding];
  return method === "fetch" || methods[method] === "repeatable";
}

/** Calls an object of this process. */
export async function askHere(env: RawBindings, { object, method, args }: ObjectCall): Promise<unknown> {
  const { binding, tenant } = object;
  const name = textOf(object);
  const stub = () => env[binding].getByName(name) as unknown as Record<string, (...args: unknown[]) => unknown>;
  const call = () => stub()[method]?.(...args);
  const counted = () => (binding === "HOME" && env.OPEN_FILES !== undefined ? inOpenHome(env, name, call) : call());
  try {
    return await (isAlone() ? counted() : calling(keyOf(binding, name), counted));
  } catch (error) {
    throw await faultOf(error, () => ({ binding, id: env[binding].idFromName(name).toString(), tenant }));
  }
}

/** The header that names the object of a `fetch`, only on the sockets between processes. */
const OBJECT_HEADER = "x-object";

/** The status of an object that has been given up: 421 (Misdirected Request). */
const MOVED = 421;

/** Calls an object in another process. Undefined if it is not there any more. */
async function askRemote(other: RemoteObjects, call: ObjectCall): Promise<{ value: unknown } | undefined> {
  if (call.method === "fetch") {
    const [url, init] = call.args as FetchArguments;
    const headers = new Headers(init?.headers);
    headers.set(OBJECT_HEADER, encodeURIComponent(JSON.stringify(call.object)));
    const value = await other.fetch(url, { ...init, headers });
    return value.status === MOVED ? undefined : { value };
  }
  const answer = await other.call(call);
  if (answer.error) throw new ApiError(answer.error);
  return answer.isMoved ? undefined : { value: answer.value };
}

type Asked = (call: ObjectCall) => Promise<{ value: unknown } | undefined>;

/** Answers a call of another process by `ask`, which gives undefined for an object that is not here any more. */
export async function answerCall(call: ObjectCall, ask: Asked): Promise<Answer> {
  try {
    return (await ask(call)) ?? { isMoved: true };
  } catch (error) {
    if (error instanceof ApiError) return { error: error.toFields() };
    throw error;
  }
}

/** The same for a `fetch`. */
export async function answerFetch(request: Request, ask: Asked): Promise<Response> {
  const object = JSON.parse(decodeURIComponent(request.headers.get(OBJECT_HEADER) ?? "null")) as ObjectName | null;
  if (!object) return new Response(null, { status: 404 });
  const { url, method, headers, signal } = request;
  const init = { method, headers, signal, body: (await request.text()) || undefined };
  const answer = await ask({ object, method: "fetch", args: [url, init] });
  return (answer?.value as Response | undefined) ?? new Response(null, { status: MOVED });
}

/** The objects whose keys (`keyOf`) these are. */
export function objectsOf(keys: readonly string[]): ObjectName[] {
  return keys.flatMap((key) => {
    const at = key.indexOf(":");
    const binding = BINDINGS.find((each) => each === key.slice(0, at));
    return binding ? [nameOf(binding, key.slice(at + 1))] : [];
  });
}
