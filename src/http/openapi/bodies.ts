import { z } from "zod";
import { addItemsBody, conversationBody, updateConversationBody } from "../../api/conversations.ts";
import { changeKeyBody, createKeyBody, rotateKeyBody, tenantBody } from "../../api/keys.ts";
import { grants } from "../../contract/grants.ts";
import { patchOperation } from "../../items/apply-patch.ts";
import { inputPart } from "../../items/parts.ts";
import { inputItem } from "../../items/registry.ts";
import { compactRequest, countRequest, createRequest } from "../../protocol/create-request.ts";
import { reasoningEffort, textFormat } from "../../protocol/output-settings.ts";
import { requestFields } from "../../protocol/request-fields.ts";
import { namedChoice, nestedChoice, normalChoice, tool, toolChoice } from "../../protocol/tools.ts";

/** The bodies that endpoints take, by the names of the description's components: the very schemas that requests are parsed with. */
export function bodySchemas() {
  return {
    CreateResponse: createRequest,
    CountInputTokens: countRequest,
    CompactConversation: compactRequest,
    CreateConversation: conversationBody,
    UpdateConversation: updateConversationBody,
    AddItems: addItemsBody,
    CreateApiKey: createKeyBody,
    ChangeApiKey: changeKeyBody,
    RotateApiKey: rotateKeyBody,
    ChangeTenant: tenantBody,
    ImportLine: z.looseObject({ object: z.string() }).describe("A line of an export, as it was written."),
    PassedRequest: z
      .looseObject({})
      .describe("The model server's own request. What it may contain is said in docs/passthrough.md."),
    PassedForm: z.looseObject({ file: z.file(), model: z.string().optional() }),
  };
}

/** The name of a body. */
export type BodyName = keyof ReturnType<typeof bodySchemas>;

/** What bodies and answers are made of, by name. */
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
  };
}
