import { type Context, Hono } from "hono";
import { ApiError, invalidRequest, responseNotFound } from "../protocol/errors.ts";
import { MAX_ID_LENGTH, parseResponseId, type TurnAddress } from "../protocol/ids.ts";
import { HomeClient, unwrap } from "../store/client.ts";
import { responseBody } from "../turn/response-builder.ts";
import type { AppEnv } from "./app-env.ts";
import { createResponse, followRun, JSON_HEADERS } from "./create-response.ts";
import { listBody, readPageQuery, readRetrieveQuery } from "./queries.ts";

/** `/v1/responses`: create, retrieve (also as a stream), cancel, delete, input items. */
export const responses = new Hono<AppEnv>()
  .post("/", createResponse)
  .get("/:id", async (context) => {
    const query = readRetrieveQuery(context);
    const { id, address, homes } = locate(context);
    if (query.stream) {
      const after = query.starting_after ?? -1;
      try {
        return await followRun(context, homes, address, after, query.include_obfuscation ?? true);
      } catch (error) {
        throw error instanceof ApiError && error.status === 404 ? responseNotFound(id) : error;
      }
    }
    if (query.starting_after !== undefined) {
      throw invalidRequest("starting_after", "'starting_after' is only valid with 'stream=true'.");
    }
    const found = await homes.stub(address.home).retrieve(address.turn);
    if (!found) throw responseNotFound(id);
    return context.body(responseBody(found), 200, JSON_HEADERS);
  })
  .post("/:id/cancel", async (context) => {
    const { id, address, homes } = locate(context);
    const cancelled = await homes.stub(address.home).cancel(address.turn);
    if (!cancelled) throw responseNotFound(id);
    return context.body(responseBody(unwrap(cancelled)), 200, JSON_HEADERS);
  })
  .delete("/:id", async (context) => {
    const { id, address, homes } = locate(context);
    if (!(await homes.stub(address.home).delete(address.turn))) throw responseNotFound(id);
    return context.json({ id, object: "response.deleted", deleted: true });
  })
  .get("/:id/input_items", async (context) => {
    const query = readPageQuery(context);
    const { id, address, homes } = locate(context);
    const page = await homes.stub(address.home).inputItems(address.turn, query);
    if (!page) throw responseNotFound(id);
    return context.body(listBody(unwrap(page)), 200, JSON_HEADERS);
  });

/** Where the response of the path lives. Throws the 404 for an id that this server cannot have made. */
function locate(context: Context<AppEnv>): { id: string; address: TurnAddress; homes: HomeClient } {
  const id = context.req.param("id") ?? "";
  if (id.length > MAX_ID_LENGTH) {
    throw invalidRequest(
      "response_id",
      `Invalid 'response_id': string too long. Expected a string with maximum length ${MAX_ID_LENGTH}.`,
      "string_above_max_length",
    );
  }
  const address = parseResponseId(id);
  if (!address) throw responseNotFound(id);
  return { id, address, homes: new HomeClient(context.env, context.get("tenant")) };
}
