import { type Context, Hono } from "hono";
import { createMiddleware } from "hono/factory";
import { requestId } from "hono/request-id";
import { loadConfig } from "../config/index.ts";
import { telemetryOf } from "../telemetry/telemetry.ts";
import type { AppEnv } from "./app-env.ts";
import { setAuthenticated } from "./auth.ts";
import { discardBody } from "./body.ts";
import { browserGuard } from "./browser-guard.ts";
import { consoleFiles, consolePage, wantsPage } from "./console.ts";
import { unlessDraining } from "./draining.ts";
import { routesOf } from "./endpoint.ts";
import { endpoints } from "./endpoints.ts";
import { renderError, unknownUrl } from "./errors.ts";
import { observed } from "./observation.ts";

/** The HTTP surface: what every request passes, and the routes of the endpoints. */

const staticPaths = new Set(endpoints.map(({ path }) => path).filter((path) => !path.includes(":")));

const configuration = createMiddleware<AppEnv>(async (context, next) => {
  const config = loadConfig(context.env);
  context.set("config", config);
  const telemetry = telemetryOf(config);
  if (telemetry) await observed(context, next, telemetry, staticPaths);
  else await next();
});

/** The same for endpoints that tell of this server. Telemetry leaves them out. */
const unobserved = createMiddleware<AppEnv>(async (context, next) => {
  context.set("config", loadConfig(context.env));
  await next();
});

const unconfigured = createMiddleware<AppEnv>((_, next) => next());

const app = new Hono<AppEnv>();

app.use(requestId());
app.use(unlessDraining);
app.use(browserGuard);
app.get("/", (context) => {
  context.header("vary", "Accept");
  if (wantsPage(context.req.raw)) return consolePage(context);
  const always = endpoints.filter(({ path, isOpen }) => !path.includes(":") && isOpen === undefined);
  return context.json({ name: "responses-edge", endpoints: [...new Set(always.map(({ path }) => path))] });
});
app.route("/", consoleFiles);
// The Worker is healthy also while its configuration is not.
app.route(
  "/",
  routesOf(endpoints, ({ access, group }) => {
    if (access === "everyone") return unconfigured;
    return group === "Operation" ? unobserved : configuration;
  }),
);
// A caller without a key does not learn which paths exist.
app.use("/v1/*", configuration, async (context, next) => {
  await setAuthenticated(context);
  await next();
});
app.notFound((context) => refuse(unknownUrl(context), context));
app.onError(refuse);

/** Renders an error, once what it leaves unread of the request's body is read: a client that is still sending would not see it. */
async function refuse(error: Error, context: Context<AppEnv>): Promise<Response> {
  await discardBody(context.req.raw);
  return renderError(error, context);
}

export default app;
