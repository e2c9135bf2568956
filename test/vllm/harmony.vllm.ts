import { factsAboutVllm } from "./real-server.ts";

factsAboutVllm("harmony");
