import { type Context, Hono } from "hono";
import { createMiddleware } from "hono/factory";
import { requestId } from "hono/request-id";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { ConfigError, loadConfig } from "../config.ts";
import { Upstream } from "../engine/upstream.ts";
import { ApiError, internalError } from "../protocol/errors.ts";
import type { AppEnv } from "./app-env.ts";
import { authentication } from "./auth.ts";
import { browserGuard, jsonBodies } from "./browser-guard.ts";
import { conversations } from "./conversations.ts";
import { health } from "./health.ts";
import { models } from "./models.ts";
import { responses } from "./responses.ts";

/** The HTTP surface: routes, and the one place where errors become answers. */

const configuration = createMiddleware<AppEnv>(async (context, next) => {
  const config = loadConfig(context.env);
  context.set("config", config);
  context.set("upstream", new Upstream(config));
  await next();
});

const app = new Hono<AppEnv>();

app.use(requestId());
app.use(browserGuard);
app.get("/", (context) =>
  context.json({
    name: "responses-edge",
    endpoints: ["/v1/responses", "/v1/conversations", "/v1/models", "/health", "/health/upstream"],
  }),
);
// The Worker is healthy also while its configuration is not.
app.use("/v1/*", configuration, authentication, jsonBodies);
app.use("/health/upstream", configuration);
app.route("/v1/responses", responses);
app.route("/v1/conversations", conversations);
app.route("/v1/models", models);
app.route("/health", health);

/** Methods of the known paths, for 405s. */
const METHODS: [path: string, allow: string][] = [
  ["/v1/responses", "POST"],
  ["/v1/responses/:id", "GET, DELETE"],
  ["/v1/responses/:id/cancel", "POST"],
  ["/v1/responses/:id/input_items", "GET"],
  ["/v1/conversations", "POST"],
  ["/v1/conversations/:id", "GET, POST, DELETE"],
  ["/v1/conversations/:id/items", "GET, POST"],
  ["/v1/conversations/:id/items/:item", "GET, DELETE"],
  ["/v1/models", "GET"],
  ["/v1/models/:id{.+}", "GET"],
  ["/health", "GET"],
  ["/health/upstream", "GET"],
];

for (const [path, allow] of METHODS) {
  app.all(path, (context) => {
    throw new ApiError({
      status: 405,
      message: `Not allowed to ${context.req.method} on ${context.req.path}. Allowed: ${allow}.`,
      code: "method_not_allowed",
      headers: { allow },
    });
  });
}

app.notFound((context) =>
  renderError(
    context,
    new ApiError({
      status: 404,
      message: `Unknown request URL: ${context.req.method} ${context.req.path}.`,
      code: "unknown_url",
    }),
  ),
);

app.onError((error, context) => {
  if (error instanceof ApiError) return renderError(context, error);
  if (error instanceof ConfigError) {
    const message = `This deployment is misconfigured. ${error.message}.`;
    return renderError(context, new ApiError({ status: 500, message, code: "server_misconfigured" }));
  }
  // What breaks off because its client has left is no fault.
  if (!context.req.raw.signal.aborted) logUnexpected(error, context);
  return renderError(context, internalError());
});

function renderError(context: Context<AppEnv>, error: ApiError): Response {
  return context.json(error.toBody(), error.status as ContentfulStatusCode, error.headers);
}

/** Logs where a fault happened. Its message stays out: it may quote a prompt or a key. */
function logUnexpected(error: Error, context: Context<AppEnv>): void {
  const at = (error.stack ?? "").split("\n").filter((line) => /^\s*at /.test(line));
  console.error(
    JSON.stringify({
      level: "error",
      request_id: context.get("requestId"),
      path: context.req.routePath,
      error: error.name,
      at,
    }),
  );
}

export default app;
