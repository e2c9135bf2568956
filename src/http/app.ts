import { serverIsStopping } from "@responses-edge/responses-api/errors";
import { type Context, Hono, type Next } from "hono";
import { cors } from "hono/cors";
import { createMiddleware } from "hono/factory";
import { requestId } from "hono/request-id";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { shownError, shownHeaders, toShownError } from "../api/faults.ts";
import { loadConfig } from "../config/index.ts";
import { reportAllEnded, reportEnded } from "../store/limits/ended-requests.ts";
import { clientsAreToLeave, processState } from "../store/objects/process-state.ts";
import { type Telemetry, telemetryOf } from "../telemetry/telemetry.ts";
import { unknownUrl } from "./answers.ts";
import type { AppEnv, Authenticated } from "./app-env.ts";
import { refuseForeignPages, setAuthenticated } from "./auth.ts";
import { discardBody } from "./body.ts";
import { ownerOf } from "./caller.ts";
import { consoleFiles, consolePage, wantsPage } from "./console.ts";
import { routesOf } from "./endpoint.ts";
import { endpoints } from "./endpoints.ts";
import { consoleSignIn } from "./sign-in.ts";
import { servedPath } from "./unserved.ts";

/** The HTTP surface: the checks of every request, and the routes of the endpoints. */

/** Paths without a route of their own. The routes that also match them look them up. */
const staticPaths = new Set(endpoints.map(({ path }) => path).filter((path) => !path.includes(":")));

const configuration = createMiddleware<AppEnv>(async (context, next) => {
  const config = loadConfig(context.env);
  context.set("config", config);
  await observed(context, next, telemetryOf(config.telemetry));
});

/** The same for endpoints about this server, which telemetry leaves out. */
const unobserved = createMiddleware<AppEnv>(async (context, next) => {
  context.set("config", loadConfig(context.env));
  await next();
});

/** How long a browser may keep the answer to a preflight. Seconds. */
const PREFLIGHT_S = 7_200;

/** The origin of the page that sends a request, if the operator has named it. A misconfigured server allows none. */
function allowedPage({ env, req }: Context<AppEnv>): string | undefined {
  const origin = req.raw.headers.get("origin");
  if (origin === null) return undefined;
  try {
    return loadConfig(env).corsOrigins.find((each) => each === origin);
  } catch {
    return undefined;
  }
}

const unconfigured = createMiddleware<AppEnv>((_, next) => next());

const app = new Hono<AppEnv>();

app.use(requestId());
app.use(async (context, next) => {
  // `/health` is refused, too, so that balancers go elsewhere.
  if (processState.isEnding) throw serverIsStopping();
  const page = allowedPage(context);
  refuseForeignPages(context, page !== undefined);
  // It also answers preflights, which have no key.
  if (page === undefined) await next();
  else return cors({ origin: page, exposeHeaders: ["*"], maxAge: PREFLIGHT_S })(context, next);
});
app.get("/", (context) => {
  context.header("vary", "Accept");
  if (wantsPage(context.req.raw)) return consolePage(context);
  const always = endpoints.filter(({ path, isOpen }) => !path.includes(":") && isOpen === undefined);
  return context.json({ name: "responses-edge", endpoints: [...new Set(always.map(({ path }) => path))] });
});
app.route("/", consoleFiles);
app.route("/", consoleSignIn);
// The Worker is healthy even if its configuration is not.
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
app.notFound((context) => refuse(unknownUrl(context, { served: servedPath(context.req.path, endpoints) }), context));
app.onError(refuse);

/**
 * The one place where errors become HTTP answers. An answer is sent after the unread rest of the request's body was
 * read: a client that is still sending would not see it earlier.
 */
async function refuse(error: Error, context: Context<AppEnv>): Promise<Response> {
  const { raw, routePath: path } = context.req;
  await discardBody(raw);
  const place = { requestId: context.get("requestId"), path, hasClientLeft: raw.signal.aborted };
  const shown = toShownError(error, place);
  return context.json(shown.toBody(), shown.status as ContentfulStatusCode, shownHeaders(shown));
}

/** OpenTelemetry calls all other methods `_OTHER`. */
const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"]);

/** Observes a request until its answer. A streamed answer ends its own observation (`Caller.observation`). */
async function observed(context: Context<AppEnv>, next: Next, telemetry: Telemetry): Promise<void> {
  const { headers, signal } = context.req.raw;
  const observation = telemetry.observe(
    { requestId: context.get("requestId"), transport: "http", headers },
    { waitUntil: (promise) => context.executionCtx.waitUntil(promise), isBrief: false },
  );
  context.set("observation", observation);
  await next();
  // Undefined before the caller is authenticated.
  const authenticated: Authenticated | undefined = context.get("authenticated");
  const asked = authenticated?.identity;
  const { path, method, routePath } = context.req;
  const { res, error } = context;
  if (asked) observation.reportTo((ended) => reportEnded(ownerOf(context, asked), ended));
  observation.know({
    endpoint: `${METHODS.has(method) ? method : "_OTHER"} ${staticPaths.has(path) ? path : routePath}`,
    tenant: asked?.tenant,
    keyId: asked?.keyId,
    hasClientLeft: signal.aborted,
    ...(context.get("isStream") && { transport: "sse" }),
  });
  observation.answered(res.status, error && shownError(error));
  // With its last answer the process may end.
  if (clientsAreToLeave()) await reportAllEnded();
}

export default app;
