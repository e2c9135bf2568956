export {
  ALL_CATEGORIES,
  asUsersMessage,
  formatNameOf,
  GUARD_FORMATS,
  type GuardFormat,
  type GuardFormatName,
  guardFormat,
  OPENAI_MODELS,
  readHookAnswer,
  takesImages,
} from "./formats.ts";
export { type Guard, judge } from "./guard.ts";
export {
  CATEGORIES,
  GuardFault,
  type Judged,
  type Judgement,
  joined,
  type ModerationFields,
  moderationFields,
  piecesOf,
} from "./judgement.ts";
export { ModeratedTurn, type Moderation, type ModerationMode, type ModerationResult } from "./moderated-engine.ts";
export { moderatedImages, moderatedText, UnjudgedInput } from "./moderated-text.ts";
export { type Modes, modesOf } from "./modes.ts";
