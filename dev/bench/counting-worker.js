/**
 * The server with counters of the cost of its turns in Durable Objects: rows written (by every SQL statement, and one
 * per alarm set, as Cloudflare bills them; by table), calls to objects, alarms that fired, and bytes that the objects
 * store. `GET /bench/counts` returns the counters and resets them. The objects and the Worker share an isolate here, so
 * plain variables are enough.
 */
import app, { Home as PlainHome } from "./index.js";

export { KeyDirectory, Quota } from "./index.js";

let statements = [];
let counts = { calls: [], alarms: 0, rings: 0 };
let patched = false;
/** The object of each storage, and the size of its database in bytes after its last statement. */
const objects = new WeakMap();
const sizes = new Map();

function patch(storage) {
  if (patched) return;
  patched = true;
  const sql = Object.getPrototypeOf(storage.sql);
  const { exec } = sql;
  sql.exec = function (...args) {
    const cursor = exec.apply(this, args);
    statements.push({ text: args[0], cursor });
    sizes.set(objects.get(this), this.databaseSize);
    return cursor;
  };
  const prototype = Object.getPrototypeOf(storage);
  const { setAlarm } = prototype;
  prototype.setAlarm = function (...args) {
    counts.alarms += 1;
    return setAlarm.apply(this, args);
  };
}

export class Home extends PlainHome {
  constructor(state, env) {
    patch(state.storage);
    objects.set(state.storage.sql, state.id.toString());
    super(state, env);
  }

  alarm() {
    counts.rings += 1;
    return super.alarm();
  }
}

const environments = new WeakMap();

/** The environment with a namespace whose stubs count their calls. */
function counting(env) {
  let wrapped = environments.get(env);
  if (!wrapped) {
    const HOME = { getByName: (name) => countingStub(env.HOME.getByName(name)) };
    wrapped = { ...env, HOME };
    environments.set(env, wrapped);
  }
  return wrapped;
}

function countingStub(stub) {
  return new Proxy(stub, {
    // The call cannot go through a variable, because every property of a stub is remote, `apply` too.
    get:
      (target, property) =>
      (...args) => {
        counts.calls.push(String(property));
        return target[property](...args);
      },
  });
}

/** Rows written by statement and table: `INSERT events`. */
function rowsByKind() {
  const rows = {};
  for (const { text, cursor } of statements) {
    if (cursor.rowsWritten === 0) continue;
    const [, verb, table] =
      /\b(INSERT|DELETE|UPDATE|CREATE)\b(?: INTO| FROM| TABLE IF NOT EXISTS)? (\w+)/.exec(text) ?? [];
    const kind = `${verb} ${table}`;
    rows[kind] = (rows[kind] ?? 0) + cursor.rowsWritten;
  }
  return rows;
}

export default {
  fetch(request, env, context) {
    if (new URL(request.url).pathname !== "/bench/counts") return app.fetch(request, counting(env), context);
    const sum = (read) => statements.reduce((total, { cursor }) => total + read(cursor), 0);
    const answer = {
      ...counts,
      rowsWritten: sum((cursor) => cursor.rowsWritten) + counts.alarms,
      rowsRead: sum((cursor) => cursor.rowsRead),
      rows: rowsByKind(),
      databaseBytes: [...sizes.values()].reduce((total, size) => total + size, 0),
    };
    statements = [];
    counts = { calls: [], alarms: 0, rings: 0 };
    return Response.json(answer);
  },
};
