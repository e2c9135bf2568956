export { type DrawnImage, drawnImage, ImageFault } from "./answer.ts";
export { type ImageGroup, type ImageSource, imagesIn } from "./conversation-images.ts";
export { type ImageFormat, type ImageHeader, imageFormatOf, readImageHeader } from "./header.ts";
export {
  type ImageFiles,
  type ImageItem,
  type ImageMaker,
  ImageSession,
  MAX_IMAGE_BYTES,
  type ShownImage,
} from "./image-session.ts";
export { type PassedFault, type PassedField, passedImageFault } from "./passed.ts";
export { type Drawing, editForm, generationBody } from "./request.ts";
export { IMAGE_FUNCTION, imageFunction, toldOfImage } from "./tool-function.ts";
