import { Hono } from "hono";
import { createMiddleware } from "hono/factory";
import { requestId } from "hono/request-id";
import { loadConfig } from "../config.ts";
import { consoleFiles, consolePage, wantsPage } from "../console/console.ts";
import { telemetryOf } from "../telemetry/telemetry.ts";
import type { AppEnv } from "./app-env.ts";
import { authentication } from "./auth.ts";
import { browserGuard, jsonBodies } from "./browser-guard.ts";
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

/** The same for what tells of this server: that is no request to be told of. */
const unobserved = createMiddleware<AppEnv>(async (context, next) => {
  context.set("config", loadConfig(context.env));
  await next();
});

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
app.use("/v1/*", configuration, authentication, jsonBodies);
// vLLM has these at its root.
for (const path of ["/tokenize", "/detokenize"]) app.use(path, configuration, authentication, jsonBodies);
app.use("/health/upstream", unobserved);
app.use("/metrics", unobserved);
app.route("/", routesOf(endpoints));
app.notFound((context) => renderError(unknownUrl(context), context));
app.onError(renderError);

export default app;
