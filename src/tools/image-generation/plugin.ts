import {
  IMAGE_FUNCTION,
  ImageFault,
  type ImageItem,
  ImageSession,
  imageFunction,
  type ShownImage,
  toldOfImage,
} from "@responses-edge/hosted-tools/image-generation";
import { ToolFault } from "@responses-edge/hosted-tools/mcp-client";
import { invalidRequest } from "@responses-edge/responses-api/errors";
import type { ImageGenerationTool } from "@responses-edge/responses-api/image-tool";
import { isImageInFile } from "@responses-edge/responses-api/items/image-generation";
import { parseArguments } from "@responses-edge/responses-api/json";
import type { Tool } from "@responses-edge/responses-api/tools";
import { stepOf } from "@responses-edge/turn/contract/plugin";
import type { CalledTool, ToolOutcome } from "@responses-edge/turn/contract/tool-session";
import { type PluginSession, type RunnablePlugin, refuseArguments, type SessionOptions, timeLeft } from "../plugin.ts";

/** `image_generation`: the operator's image servers draw and change images for the model. */

interface ImageGeneration extends CalledTool {
  readonly kind: "image_generation";
}

interface ImageOutcome extends ToolOutcome {
  shown?: ShownImage;
}

const TOOL: ImageGeneration = { kind: "image_generation" };
const TOOLS = new Map([[IMAGE_FUNCTION, TOOL]]);

export const IMAGE_GENERATION: RunnablePlugin<ImageGeneration, ImageItem> = {
  kind: "image_generation",
  // A call that a crash has cut off is drawn again.
  isRepeatable: true,
  functions: [imageFunction({})],
  tools: TOOLS,
  fullName: () => IMAGE_FUNCTION,
  item: {
    type: "image_generation_call",
    canShow: (_tool, _text, isComplete) => isComplete,
    create: (_tool, { id }) => ({ id, type: "image_generation_call", status: "in_progress", result: null }),
    start(item) {
      item.status = "generating";
      return "response.image_generation_call.generating";
    },
    finish(item, { shown, failed, output }: ImageOutcome) {
      if (shown) Object.assign(item, shown);
      if (!failed) return "response.image_generation_call.completed";
      const message = output.replace(/^Error: /, "");
      // The AI SDK rejects an item without a text as its result.
      Object.assign(item, { result: "", error: { type: "image_generation_error", code: null, message, param: null } });
      return undefined;
    },
    toolOf: () => TOOL,
    cutOff: "failed",
    resultLength: (item) => (isImageInFile(item) ? 0 : (item.result?.length ?? 0)),
  },
  exchanges: {
    image_generation_call(item) {
      if (item.id === undefined || (!item.result && item.file_id === undefined)) return undefined;
      const prompt = JSON.stringify({ prompt: item.revised_prompt ?? "" });
      return { name: IMAGE_FUNCTION, arguments: prompt, output: toldOfImage(item.id, item), step: stepOf(item) };
    },
  },
  check(tool, index, { config: { images } }) {
    if (!isImageGeneration(tool)) return;
    if (!images) {
      const message = "This server has no image model (IMAGE_MODEL).";
      throw invalidRequest(`tools[${index}].type`, message, "unsupported_parameter");
    }
    if (tool.model === undefined || images.names.has(tool.model)) return;
    const message = `The image model '${tool.model}' does not exist. Supported values are: ${[...images.names].map((name) => `'${name}'`).join(", ")}.`;
    throw invalidRequest(`tools[${index}].model`, message, "model_not_found");
  },
  session(turn) {
    const tool = turn.request.tools?.find(isImageGeneration) ?? {};
    const { deadline, config } = turn;
    const session = sessionOf(turn, tool);
    const offered = imageFunction(tool);
    return {
      offered: { functions: [offered] },
      tools: TOOLS,
      async run(call, signal): Promise<ImageOutcome> {
        const timeout = AbortSignal.timeout(timeLeft(deadline, config.images?.timeoutMs ?? 0));
        try {
          if (!session) throw new ToolFault("unreachable", "There is nothing that draws.");
          refuseArguments(parseArguments(call.arguments), offered.parameters);
          const drawn = await session.draw(call.item, call.arguments, AbortSignal.any([signal, timeout]));
          return { ...drawn, failed: false };
        } catch (error) {
          if (timeout.aborted && !signal.aborted)
            throw new ToolFault("timeout", "The image server did not answer in time.");
          throw error instanceof ImageFault ? new ToolFault("tool", error.message) : error;
        }
      },
    } satisfies PluginSession;
  },
};

function sessionOf(turn: SessionOptions, tool: Partial<ImageGenerationTool>): ImageSession | undefined {
  const { images: maker, containerFiles, config, request } = turn;
  if (!maker) return undefined;
  const files = containerFiles?.();
  const seconds = Math.floor((config.images?.keptMs ?? 0) / 1000);
  return new ImageSession({
    tool,
    items: [...turn.items, ...turn.output],
    maker,
    files: files && {
      read: (id) => files.read(id),
      keep: async (path, mimeType, bytes) => (await files.keep({ path, mimeType, bytes: [bytes], seconds })).id,
    },
    isKept: request.store !== false || request.conversation != null,
  });
}

function isImageGeneration(tool: Tool): tool is ImageGenerationTool {
  return tool.type === "image_generation";
}
