/**
 * The classes of Durable Objects: one row for each, from which everything that lists them is derived. Programs beside the
 * Worker read it, too, so it imports nothing.
 */

/**
 * Says whether a method is called again if its object's process died in the middle. `repeatable`: it only reads, or a
 * second call changes nothing and gives the same answer. `once`: the caller gets the error. `fetch` is repeatable everywhere.
 */
export type Repetition = "repeatable" | "once";

/** The step to the next version of a class's tables. */
export interface Migration {
  /** The table that it changes. An object without this table does not need the migration. */
  readonly table: string;
  /** A column of the table that only this version and later ones have. One of the statements adds it. */
  readonly column: string;
  readonly statements: readonly string[];
}

/** A class of objects. `objects.ts` checks each row against its class. */
export interface ClassRow {
  readonly className: string;
  /** The migrations of its tables, oldest first: those that the class creates are version 1. Null if its content renews itself. */
  readonly migrations: readonly Migration[] | null;
  /** Each of its objects belongs to a tenant and has a key, or to a tenant, or to the whole deployment, whose only object has this name. */
  readonly scope: "key" | "tenant" | { readonly name: string };
  /**
   * How a tenant's data in it is exported, and erased. `itself`: its object of the tenant gives all lines by `exported`, and
   * removes everything by `erase`. `function`: the class has a function in `src/api/tenant-data.ts`. `not`: the row says why.
   */
  readonly exported: TenantDataWay;
  readonly erased: TenantDataWay;
  readonly methods: Readonly<Record<string, Repetition>>;
}

type TenantDataWay = "itself" | "function" | "not";

/** In the order in which a tenant is erased: a running batch stores responses and files, homes report to lists, webhooks and quotas. */
export const OBJECTS = {
  KEYS: {
    className: "KeyDirectory",
    migrations: [],
    scope: { name: "directory" },
    exported: "function",
    erased: "function",
    methods: {
      lookUp: "repeatable",
      lookUpTenant: "repeatable",
      overrides: "repeatable",
      setOverrides: "once",
      tenantLimits: "repeatable",
      noteTenant: "repeatable",
      tenants: "repeatable",
      create: "once",
      get: "repeatable",
      list: "repeatable",
      change: "once",
      rotate: "once",
      delete: "once",
      setTenantLimits: "once",
      eraseTenant: "once",
      note: "once",
      auditLog: "repeatable",
    },
  },
  BATCHES: {
    className: "Batches",
    migrations: [],
    scope: "tenant",
    // Its results are files. A batch that goes on elsewhere would run twice.
    exported: "not",
    erased: "itself",
    methods: { create: "repeatable", get: "repeatable", list: "repeatable", cancel: "repeatable", erase: "repeatable" },
  },
  HOME: {
    className: "Home",
    migrations: [],
    scope: "key",
    exported: "function",
    erased: "function",
    methods: {
      snapshot: "repeatable",
      awaitTurn: "repeatable",
      settle: "repeatable",
      settleTogether: "repeatable",
      retrieve: "repeatable",
      inputItems: "repeatable",
      tree: "repeatable",
      updateResponse: "repeatable",
      delete: "once",
      startRun: "repeatable",
      finished: "repeatable",
      cancel: "repeatable",
      liveRun: "repeatable",
      cancelRun: "once",
      createConversation: "once",
      conversation: "repeatable",
      updateConversation: "repeatable",
      deleteConversation: "once",
      conversationHistory: "repeatable",
      conversationItems: "repeatable",
      conversationTree: "repeatable",
      addConversationItems: "repeatable",
      conversationItem: "repeatable",
      deleteConversationItem: "repeatable",
      leaveConversation: "repeatable",
      erase: "repeatable",
      import: "once",
      claim: "repeatable",
      begun: "repeatable",
      unclaim: "repeatable",
    },
  },
  VECTOR_STORES: {
    className: "VectorStore",
    migrations: [],
    scope: "key",
    exported: "function",
    erased: "function",
    methods: {
      create: "repeatable",
      object: "repeatable",
      facts: "repeatable",
      update: "repeatable",
      delete: "once",
      addFiles: "repeatable",
      addBatch: "once",
      file: "repeatable",
      files: "repeatable",
      updateFile: "repeatable",
      removeFile: "once",
      content: "repeatable",
      batch: "repeatable",
      cancelBatch: "repeatable",
      reindex: "repeatable",
      search: "repeatable",
    },
  },
  FILE_DIRECTORIES: {
    className: "FileDirectory",
    migrations: [],
    scope: "tenant",
    // A container's files are exported as files. Its state is the tool server's, and is no data at rest.
    exported: "function",
    erased: "function",
    methods: {
      begin: "repeatable",
      touch: "repeatable",
      commit: "repeatable",
      record: "repeatable",
      list: "repeatable",
      remove: "once",
      discard: "repeatable",
      removeSome: "once",
      use: "repeatable",
      disuse: "repeatable",
      createUpload: "repeatable",
      upload: "repeatable",
      beginPart: "once",
      finishPart: "repeatable",
      discardPart: "repeatable",
      completeUpload: "repeatable",
      cancelUpload: "repeatable",
      addStore: "repeatable",
      hasStore: "repeatable",
      removeStore: "repeatable",
      stores: "repeatable",
      createContainer: "repeatable",
      container: "repeatable",
      containers: "repeatable",
      removeContainer: "once",
      removeSomeContainers: "once",
      useContainer: "repeatable",
      settleContainer: "repeatable",
      touchContainer: "repeatable",
      loseContainer: "repeatable",
      giveToContainer: "repeatable",
      containerFile: "repeatable",
      containerFiles: "repeatable",
      removeContainerFile: "once",
    },
  },
  FILE_BYTES: {
    className: "FileBytes",
    migrations: [],
    scope: "key",
    // The directory of the tenant's files exports and removes them.
    exported: "not",
    erased: "not",
    methods: { append: "repeatable", keep: "repeatable", erase: "repeatable" },
  },
  WEBHOOKS: {
    className: "Webhooks",
    migrations: [],
    scope: "tenant",
    // An endpoint has a secret, which no export contains.
    exported: "not",
    erased: "itself",
    methods: {
      hasEndpoints: "repeatable",
      list: "repeatable",
      get: "repeatable",
      create: "once",
      change: "repeatable",
      rotate: "once",
      delete: "once",
      test: "once",
      deliveries: "repeatable",
      announce: "repeatable",
      erase: "repeatable",
    },
  },
  RESPONSE_INDEXES: {
    className: "ResponseIndex",
    migrations: [],
    scope: "tenant",
    // The homes list their responses again.
    exported: "not",
    erased: "itself",
    methods: {
      take: "repeatable",
      compare: "repeatable",
      list: "repeatable",
      listTrees: "repeatable",
      erase: "repeatable",
    },
  },
  BOARD: {
    className: "Board",
    migrations: [],
    scope: { name: "board" },
    // The log of requests is the operator's. The homes announce their live runs, and forget them.
    exported: "not",
    erased: "function",
    methods: {
      addRequests: "once",
      requests: "repeatable",
      sums: "repeatable",
      eraseTenant: "repeatable",
      read: "repeatable",
      share: "repeatable",
      announceRun: "repeatable",
      forgetRuns: "repeatable",
      run: "repeatable",
      runs: "repeatable",
    },
  },
  QUOTAS: {
    className: "Quota",
    migrations: [],
    scope: "tenant",
    exported: "itself",
    erased: "function",
    methods: {
      exchange: "repeatable",
      takeStored: "repeatable",
      stored: "repeatable",
      usage: "repeatable",
      exported: "repeatable",
      noteStore: "repeatable",
      storeBytes: "repeatable",
      noteHome: "repeatable",
      homes: "repeatable",
      forgetHomes: "repeatable",
      erase: "repeatable",
    },
  },
} as const satisfies Record<string, ClassRow>;

/** The binding by which the Worker reaches objects of a class. */
export type ObjectBinding = keyof typeof OBJECTS;

export const CLASS_NAMES: readonly string[] = Object.values(OBJECTS).map(({ className }) => className);

/**
 * The present version of the tables of each class that has any, by the class's name. Programs beside the Worker must not
 * touch data of a newer version.
 */
export const SCHEMA_VERSIONS: Readonly<Record<string, number>> = Object.fromEntries(
  Object.values<ClassRow>(OBJECTS).flatMap(({ className, migrations }) =>
    migrations ? [[className, 1 + migrations.length]] : [],
  ),
);

/** The parts of the name of an object of a class. No tenant's name has a colon. */
export type NameParts<Binding extends ObjectBinding> = (typeof OBJECTS)[Binding]["scope"] extends "key"
  ? [tenant: string, key: string]
  : (typeof OBJECTS)[Binding]["scope"] extends "tenant"
    ? [tenant: string]
    : [];

/** The name of an object, with the binding of its class. */
export interface ObjectName {
  readonly binding: ObjectBinding;
  /** Undefined for an object of the whole deployment. */
  readonly tenant?: string | undefined;
  /** Undefined for an object of the deployment, or of a tenant. */
  readonly key?: string | undefined;
}

/** The name by which the platform knows an object among those of its class. */
export function textOf({ binding, tenant, key }: ObjectName): string {
  const { scope } = OBJECTS[binding];
  if (typeof scope === "object") return scope.name;
  return key === undefined ? (tenant ?? "") : `${tenant}:${key}`;
}

/** The class and the name of an object, as one text. */
export const keyOf = (object: ObjectName): string => `${object.binding}:${textOf(object)}`;

/** The name that such a text is. */
export function nameOf(binding: ObjectBinding, text: string): ObjectName {
  const { scope } = OBJECTS[binding];
  if (typeof scope === "object") return { binding };
  if (scope === "tenant") return { binding, tenant: text };
  const at = text.indexOf(":");
  return { binding, tenant: text.slice(0, at), key: text.slice(at + 1) };
}

/**
 * Gives the worker, from 0, of the workerd processes that `serve` starts with WORKERS (docs/self-hosting.md), that has an
 * object: it runs nowhere else. `id`: the object's id (`idFromName`), hex.
 */
export function workerOf(id: string, workers: number): number {
  return Number.parseInt(id.slice(0, 8), 16) % workers;
}
