import { again } from "./again.ts";

await again("model-server-wire");
