export { endContainer } from "../tools/tool-server.ts";
