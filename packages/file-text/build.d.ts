export function buildPdfReader(): void;
