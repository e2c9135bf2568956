/**
 * The server as it is, with a count of what a turn costs at its home: rows written (those of every SQL statement, and
 * one per alarm set, as they are billed) and calls to objects. `GET /bench/counts` gives them and begins anew.
 * Object and Worker share an isolate here, so plain variables will do.
 */
import app, { Home as PlainHome } from "./index.js";

let cursors = [];
let counts = { calls: [], alarms: 0 };
let patched = false;

function patch(storage) {
  if (patched) return;
  patched = true;
  const sql = Object.getPrototypeOf(storage.sql);
  const { exec } = sql;
  sql.exec = function (...args) {
    const cursor = exec.apply(this, args);
    cursors.push(cursor);
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
    super(state, env);
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
    // Not through a variable: everything on a stub is a remote property, `apply` too.
    get:
      (target, property) =>
      (...args) => {
        counts.calls.push(String(property));
        return target[property](...args);
      },
  });
}

export default {
  fetch(request, env, context) {
    if (new URL(request.url).pathname !== "/bench/counts") return app.fetch(request, counting(env), context);
    const rowsWritten = cursors.reduce((sum, cursor) => sum + cursor.rowsWritten, counts.alarms);
    const rowsRead = cursors.reduce((sum, cursor) => sum + cursor.rowsRead, 0);
    const answer = { rowsWritten, rowsRead, alarms: counts.alarms, calls: counts.calls, statements: cursors.length };
    cursors = [];
    counts = { calls: [], alarms: 0 };
    return Response.json(answer);
  },
};
