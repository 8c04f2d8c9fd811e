// The server's errors.

export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    message: string,
    /** The HTTP status, or 0 if the server gave no answer. */
    readonly status: number,
    /** The server's stable name of the error, for example `adapter_not_found`. */
    readonly code: string,
    readonly details: unknown[] = [],
    readonly retryAfterSeconds: number | null = null,
    readonly requestId: string | null = null,
  ) {
    super(message);
  }
}

/** The error that an unsuccessful response describes. Its body is the native, OpenAI's or no known form. */
export async function errorOf(response: Response): Promise<ApiError> {
  return errorFrom(response.status, await response.text(), (name) => response.headers.get(name));
}

export function errorFrom(status: number, body: string, header: (name: string) => string | null): ApiError {
  const error = parsed(body);
  const retryAfter = Number(header("retry-after") ?? Number.NaN);
  return new ApiError(
    typeof error.message === "string" ? sentence(error.message) : `The server answered with status ${status}.`,
    status,
    typeof error.code === "string" ? error.code : "unknown",
    Array.isArray(error.details) ? error.details : [],
    Number.isFinite(retryAfter) ? retryAfter : null,
    header("x-request-id"),
  );
}

/** A message of the server, which begins in lower case and has no full stop, as a sentence. */
export function sentence(message: string): string {
  const text = message.trim();
  const end = /[.!?…]$/.test(text) || text === "" ? "" : ".";
  return text.charAt(0).toUpperCase() + text.slice(1) + end;
}

/** The error of a request that got no answer. */
export function noAnswer(): ApiError {
  return new ApiError("The server does not answer.", 0, "no_answer");
}

function parsed(body: string): { message?: unknown; code?: unknown; details?: unknown } {
  try {
    const { error } = JSON.parse(body);
    return typeof error === "string" ? { message: error } : (error ?? {});
  } catch {
    return {};
  }
}
