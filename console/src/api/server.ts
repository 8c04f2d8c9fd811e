// How the console calls the server: one typed client over one fetch function.
import createClient from "openapi-fetch";
import { ApiError, errorOf, noAnswer } from "./error";
import { currentKey, refuseKey } from "./key";
import type { components, paths } from "./schema";

/** A body of the server's protocol by its name in the OpenAPI document. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

/** The server's root. The console is served one level below it. */
export const ROOT = new URL("..", document.baseURI).href.replace(/\/$/, "");

/** `fetch` with the visitor's key. Rejects with an `ApiError` unless the server answers with success. */
export async function fetchWithKey(input: Request): Promise<Response> {
  const { key } = currentKey();
  const request = new Request(input, { credentials: "omit", cache: "no-store" });
  if (key) request.headers.set("authorization", `Bearer ${key}`);
  const response = await fetch(request).catch((failure: unknown) => {
    if (input.signal.aborted) throw failure;
    throw noAnswer();
  });
  if (response.ok) return response;
  const error = await errorOf(response);
  if (error.status === 401) refuseKey(key, error.message);
  throw error;
}

/** The typed client: `await answer(api.GET("/v1/adapters", { params: { query: { q: "intent" } } }))`. */
export const api = createClient<paths>({ baseUrl: ROOT, fetch: fetchWithKey });

/** The body of a call's answer. Rejects with an `ApiError`. */
export async function answer<Body>(call: Promise<{ data?: Body }>): Promise<Body> {
  // Errors reject in `fetchWithKey`, so that an answer without a body is one of status 204.
  return (await call).data as Body;
}

export function asApiError(failure: unknown): ApiError {
  if (failure instanceof ApiError) return failure;
  return new ApiError(failure instanceof Error ? failure.message : String(failure), 0, "console_error");
}
