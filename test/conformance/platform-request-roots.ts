import type { BatchCreateParams } from "openai/resources/batches";
import type { ChatCompletionCreateParamsNonStreaming } from "openai/resources/chat/completions";
import type { ContainerCreateParams } from "openai/resources/containers/containers";
import type { DecisionCreateParams } from "openai/resources/decisions";
import type { FileCreateParams } from "openai/resources/files";
import type { ImageGenerateParamsNonStreaming } from "openai/resources/images";
import type { ModerationCreateParams } from "openai/resources/moderations";
import type { UploadCompleteParams, UploadCreateParams } from "openai/resources/uploads/uploads";
import type { FileBatchCreateParams } from "openai/resources/vector-stores/file-batches";
import type {
  FileCreateParams as StoreFileCreateParams,
  FileUpdateParams as StoreFileUpdateParams,
} from "openai/resources/vector-stores/files";
import type {
  VectorStoreCreateParams,
  VectorStoreSearchParams,
  VectorStoreUpdateParams,
} from "openai/resources/vector-stores/vector-stores";
import type {
  WebhookCreateParams,
  WebhookRotateSecretParams,
  WebhookTestParams,
  WebhookUpdateParams,
} from "openai/resources/webhooks/webhooks";

/** The bodies of all other endpoints, without ids of their paths and files of forms. Read as text, never imported. */
export interface Roots {
  file: Omit<FileCreateParams, "file">;
  container: ContainerCreateParams;
  upload: UploadCreateParams;
  upload_complete: UploadCompleteParams;
  vector_store: VectorStoreCreateParams;
  vector_store_update: VectorStoreUpdateParams;
  vector_store_search: VectorStoreSearchParams;
  store_file: StoreFileCreateParams;
  store_file_update: Omit<StoreFileUpdateParams, "vector_store_id">;
  store_batch: FileBatchCreateParams;
  batch: BatchCreateParams;
  webhook: WebhookCreateParams;
  webhook_update: WebhookUpdateParams;
  webhook_rotate: WebhookRotateSecretParams;
  webhook_test: WebhookTestParams;
  moderation: ModerationCreateParams;
  decision: DecisionCreateParams;
  image: ImageGenerateParamsNonStreaming;
  chat: ChatCompletionCreateParamsNonStreaming;
}
