export function buildVocabulary(): void;
