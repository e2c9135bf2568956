import { again } from "./again.ts";

await again("redirects");
