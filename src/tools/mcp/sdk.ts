/**
 * The parts of the client package that are used: imported as a whole, later, it would be bundled as a whole, with its OAuth and
 * what that brings.
 *
 * It is loaded when it is first needed, and shares zod with the rest; so everywhere zod must be imported as `{ z }`. With
 * `* as z` esbuild leaves out the call that initialises a shared module whose package says it has no side effects.
 */
export {
  Client,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  SSEClientTransport,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
