/**
 * The minimum cost of storing on this runtime: one row in an object, with an alarm. `/new` makes an object for each
 * request, as a new conversation does. `/known` always calls the same one.
 */
import { DurableObject } from "cloudflare:workers";

export class Home extends DurableObject {
  async put(key, value) {
    const { sql } = this.ctx.storage;
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(Date.now() + 1e9);
    sql.exec("CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID");
    sql.exec("INSERT INTO rows (key, value) VALUES (?, ?)", key, value);
  }

  alarm() {}
}

const VALUE = "x".repeat(3000);

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname === "/") return new Response();
    const key = crypto.randomUUID();
    await env.HOME.getByName(pathname === "/new" ? key : "known").put(key, VALUE);
    return new Response("ok");
  },
};
