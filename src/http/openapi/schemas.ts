import { alwaysNull } from "@responses-edge/bounded-io/schemas/described-as";
import { attributeFilter } from "@responses-edge/responses-api/attribute-filter";
import { compactRequest, countRequest, createRequest } from "@responses-edge/responses-api/create-bodies";
import { requestFields } from "@responses-edge/responses-api/create-fields";
import { answeredItems } from "@responses-edge/responses-api/items/answered";
import { patchOperation } from "@responses-edge/responses-api/items/apply-patch";
import { eventSchemas } from "@responses-edge/responses-api/items/events";
import { inputPart } from "@responses-edge/responses-api/items/parts";
import { inputItem } from "@responses-edge/responses-api/items/registry";
import { moderationRequest, moderationSchemas } from "@responses-edge/responses-api/moderations";
import { reasoningEffort, textFormat } from "@responses-edge/responses-api/output-settings";
import { AUDIT_TYPES } from "@responses-edge/responses-api/platform/audit";
import { requestBatchBody, requestBatchObject } from "@responses-edge/responses-api/platform/batches";
import {
  addContainerFileBody,
  containerFileForm,
  containerFileObject,
  containerObject,
  createContainerBody,
} from "@responses-edge/responses-api/platform/containers";
import { createDecision, decisionObject } from "@responses-edge/responses-api/platform/decisions";
import {
  completeUploadBody,
  createUploadBody,
  fileFields,
  fileObject,
  uploadObject,
  uploadPartObject,
} from "@responses-edge/responses-api/platform/files";
import { listedResponse } from "@responses-edge/responses-api/platform/listed-response";
import { responsePrompt } from "@responses-edge/responses-api/platform/response-prompt";
import { treeNode } from "@responses-edge/responses-api/platform/tree";
import {
  addStoreFileBody,
  batchObject,
  contentPage,
  createBatchBody,
  createStoreBody,
  searchBody,
  searchPage,
  storeFileObject,
  updateStoreBody,
  updateStoreFileBody,
  vectorStoreObject,
} from "@responses-edge/responses-api/platform/vector-stores";
import {
  createEndpointBody,
  deletedEndpointObject,
  endpointTestObject,
  rotateSecretBody,
  testEndpointBody,
  updateEndpointBody,
  webhookDeliveryObject,
  webhookEndpointObject,
} from "@responses-edge/responses-api/platform/webhooks";
import { responseSchemas } from "@responses-edge/responses-api/response";
import { rankingOptions } from "@responses-edge/responses-api/search-settings";
import { namedChoice, nestedChoice, normalChoice, tool, toolChoice } from "@responses-edge/responses-api/tools";
import { STORED_LIMITS } from "@responses-edge/usage-limits";
import { z } from "zod";
import { changeConfigurationBody, shownConfiguration } from "../../api/configuration.ts";
import { addItemsBody, conversationBody } from "../../api/conversations.ts";
import { forkBody } from "../../api/forks.ts";
import { LIMITED_BECAUSE } from "../../api/health.ts";
import { changeKeyBody, createKeyBody, rotateKeyBody, tenantBody } from "../../api/keys.ts";
import { replayBody } from "../../api/replays.ts";
import { metadataBody } from "../../api/responses.ts";
import {
  apiKeyObject,
  importedTenant,
  overview,
  requestSummary,
  responseDetails,
  runObject,
} from "../../contract/admin-objects.ts";
import { grants } from "../../contract/grants.ts";
import { DISK_STATES } from "../../store/objects/process-state.ts";
import { upstreamHealth } from "./upstream-health.ts";
import { usageSchemas } from "./usage-schemas.ts";

/**
 * The answers of endpoints, as zod schemas by the names of the description's components. They only describe: tests
 * check every answer that they see with them, and check them with the types of the openai package.
 */
export type Answers = ReturnType<typeof answerSchemas>;

/** The name of an answer. */
export type AnswerName = keyof Answers;

/** Makes the schemas. A function, so that an isolate makes them only when its description is asked for. */
export function answerSchemas() {
  const items = answeredItems();
  const text = z.string();
  const seconds = z.int().min(0).describe("Unix seconds.");
  const count = z.int().min(0);
  const metadata = z.record(text, text);
  const message = z.object({ type: text, code: text.nullable(), message: text, param: text.nullable() });
  const usage = usageSchemas();

  const { Usage, ToolUsage, Timing, ResponseObject } = responseSchemas();
  const ResponseStreamEvent = eventSchemas(ResponseObject, items.OutputItem);

  const page = <Item extends z.ZodType>(item: Item) =>
    z.object({
      object: z.literal("list"),
      data: z.array(item),
      first_id: text.nullable(),
      last_id: text.nullable(),
      has_more: z.boolean(),
    });
  const deleted = <const Name extends string>(object: Name) =>
    z.object({ id: text, object: z.literal(object), deleted: z.literal(true) });

  const Model = z.object({
    id: text,
    object: z.literal("model"),
    created: z.int(),
    owned_by: text,
    root: text.optional(),
    parent: text.nullish(),
    max_model_len: z.int().nullish(),
  });
  const CodexModel = z.looseObject({ slug: text, display_name: text });

  const ApiKey = apiKeyObject();
  const Tenant = z.object({ object: z.literal("tenant"), id: text, limits: grants.nullable() });
  const Conversation = z.object({ id: text, object: z.literal("conversation"), created_at: seconds, metadata });

  const TreeNode = treeNode();
  const Run = runObject();
  const ImportedTenant = importedTenant();
  return {
    ...items,
    Usage,
    ToolUsage,
    ResponseTiming: Timing,
    ResponseObject,
    ResponseStreamEvent,
    DeletedResponse: deleted("response.deleted"),
    InputTokenCount: z.object({ object: z.literal("response.input_tokens"), input_tokens: count }),
    CompactedResponse: z.object({
      id: text,
      object: z.literal("response.compaction"),
      created_at: seconds,
      output: z.array(items.Item),
      usage: Usage,
    }),
    ItemList: page(items.Item),
    Conversation,
    DeletedConversation: deleted("conversation.deleted"),
    File: fileObject(),
    Container: containerObject(),
    ContainerList: page(containerObject()),
    DeletedContainer: deleted("container.deleted"),
    ContainerFile: containerFileObject(),
    ContainerFileList: page(containerFileObject()),
    DeletedContainerFile: deleted("container.file.deleted"),
    FileList: page(fileObject()),
    DeletedFile: deleted("file"),
    Upload: uploadObject(),
    UploadPart: uploadPartObject(),
    VectorStore: vectorStoreObject(),
    VectorStoreList: page(vectorStoreObject()),
    DeletedVectorStore: deleted("vector_store.deleted"),
    VectorStoreSearchResults: searchPage(),
    VectorStoreFile: storeFileObject(),
    VectorStoreFileList: page(storeFileObject()),
    DeletedVectorStoreFile: deleted("vector_store.file.deleted"),
    VectorStoreFileContent: contentPage(),
    VectorStoreFileBatch: batchObject(),
    FileContent: z.file().describe("The bytes of the file, as they were uploaded."),
    Model,
    CodexModel,
    ModelList: z.union([
      z.object({ object: z.literal("list"), data: z.array(Model) }),
      z.object({ models: z.array(CodexModel) }),
    ]),
    PassedAnswer: z.unknown().describe("The model server's own answer, unchanged."),
    ApiKey,
    NewApiKey: ApiKey.extend({ value: text.describe("The key itself, shown only this once.") }),
    ApiKeyList: page(ApiKey),
    DeletedApiKey: deleted("api_key.deleted"),
    Tenant,
    Configuration: shownConfiguration(),
    ErasedTenant: z.object({
      object: z.literal("tenant.erased"),
      id: text,
      homes: count,
      next: text.nullable().describe("`after` of the next call, where there are more homes."),
      has_more: z.boolean(),
    }),
    ExportLine: z
      .looseObject({ object: text })
      .describe(
        "A tenant, a key, a usage row, a conversation, a response with its input, a file, or a vector store; last an `export.page`.",
      ),
    AuditLog: page(
      z.looseObject({
        id: text,
        object: z.literal("organization.audit_log"),
        type: z.enum(AUDIT_TYPES),
        effective_at: seconds,
        actor: z.union([
          z.object({ type: z.literal("api_key"), api_key: z.object({ id: text }) }),
          z.object({ type: z.literal("session"), session: z.object({ user: z.object({ id: text }) }) }),
        ]),
        project: z.object({ id: text }),
      }),
    ),
    TreeNode,
    Tree: page(TreeNode),
    ResponsePrompt: responsePrompt(),
    ListedResponse: listedResponse(),
    ResponseList: page(listedResponse()),
    Run,
    RunList: page(Run),
    RequestSummary: requestSummary(),
    ResponseDetails: responseDetails(),
    RequestList: page(requestSummary()),
    Overview: overview(),
    CancelledRun: Run.pick({ object: true, id: true, tenant: true }).extend({ status: text }),
    ImportedTenant,
    RefusedImport: ImportedTenant.extend({ error: message }),
    ...usage.pages,
    StoragePage: z.object({
      object: z.literal("page"),
      data: usage.buckets(
        z.object({
          object: z.literal("organization.usage.storage.result"),
          usage_bytes: count,
          num_responses: count,
          num_conversations: count,
          project_id: text.nullable(),
          api_key_id: text.nullable(),
          limits: z.partialRecord(z.enum(STORED_LIMITS), count).nullable(),
        }),
      ),
      has_more: z.literal(false),
      next_page: alwaysNull(),
    }),
    Health: z.object({
      status: z.literal("ok"),
      disk: z.enum(DISK_STATES).optional(),
      open_files: z
        .object({
          limit: z.int(),
          used: z.int().nullable(),
          objects: z.object({ limit: z.int(), open: z.int() }),
        })
        .optional()
        .describe("The limit of open files of the process, and the open ones; self-hosted."),
    }),
    Decision: decisionObject(),
    Moderation: moderationSchemas().Moderation,
    Batch: requestBatchObject(),
    BatchList: page(requestBatchObject()),
    WebhookEndpoint: webhookEndpointObject(),
    WebhookEndpointList: page(webhookEndpointObject()),
    DeletedWebhookEndpoint: deletedEndpointObject(),
    WebhookEndpointTest: endpointTestObject(),
    WebhookDeliveryList: page(webhookDeliveryObject()),
    WebhookEventTypeList: z.object({ object: z.literal("list"), data: z.array(text) }),
    Liveness: z.object({ status: z.literal("ok") }),
    Readiness: z.object({
      status: z.enum(["ready", "limited"]),
      reasons: z.array(z.enum(LIMITED_BECAUSE)),
    }),
    UpstreamHealth: upstreamHealth(),
    Metrics: text.describe("Prometheus's text format."),
    Description: z.looseObject({ openapi: text }).describe("An OpenAPI document."),
    ErrorBody: z.object({ error: message }).describe("`param` is the path of the invalid field, or null."),
  };
}

/** The bodies of endpoints, by the names of the description's components: the same schemas that parse requests. */
export function bodySchemas() {
  return {
    CreateResponse: createRequest,
    CountInputTokens: countRequest,
    CompactConversation: compactRequest,
    CreateDecision: createDecision,
    CreateModeration: moderationRequest,
    CreateBatch: requestBatchBody,
    CreateWebhookEndpoint: createEndpointBody,
    UpdateWebhookEndpoint: updateEndpointBody,
    RotateWebhookSecret: rotateSecretBody,
    TestWebhookEndpoint: testEndpointBody,
    CreateConversation: conversationBody,
    UpdateMetadata: metadataBody,
    ReplayResponse: replayBody,
    ForkResponse: forkBody,
    AddItems: addItemsBody,
    CreateApiKey: createKeyBody,
    ChangeApiKey: changeKeyBody,
    RotateApiKey: rotateKeyBody,
    ChangeTenant: tenantBody,
    ChangeConfiguration: changeConfigurationBody,
    ImportLine: z.looseObject({ object: z.string() }).describe("A line of an export, as it was written."),
    PassedRequest: z
      .looseObject({})
      .describe("The model server's own request. What it may contain is said in docs/model-servers.md."),
    CreateUpload: createUploadBody,
    AddUploadPart: z.object({ data: z.file() }),
    CompleteUpload: completeUploadBody,
    CreateVectorStore: createStoreBody,
    UpdateVectorStore: updateStoreBody,
    SearchVectorStore: searchBody,
    CreateVectorStoreFile: addStoreFileBody,
    UpdateVectorStoreFile: updateStoreFileBody,
    CreateVectorStoreFileBatch: createBatchBody,
    CreateContainer: createContainerBody,
    CreateContainerFile: containerFileForm.extend({ file: z.file() }),
    AddContainerFile: addContainerFileBody,
    CreateFile: fileFields.extend({ file: z.file() }),
    PassedForm: z.looseObject({ file: z.file(), model: z.string().optional() }),
  };
}

/** The name of a body. */
export type BodyName = keyof ReturnType<typeof bodySchemas>;

/** The parts of bodies and answers, by name. */
export function sharedSchemas() {
  return {
    RequestFields: requestFields,
    InputItem: inputItem,
    InputPart: inputPart,
    Tool: tool,
    ToolChoice: normalChoice,
    NamedToolChoice: namedChoice,
    NestedToolChoice: nestedChoice,
    ToolChoiceInput: toolChoice,
    TextFormat: textFormat,
    ReasoningEffort: reasoningEffort,
    PatchOperation: patchOperation,
    Limits: grants,
    AttributeFilter: attributeFilter,
    RankingOptions: rankingOptions,
  };
}
