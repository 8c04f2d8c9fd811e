import { ApiError } from "@/api/error";

interface NextStep {
  title: string;
  advice: string;
}

const BY_STATUS: Record<number, NextStep> = {
  0: {
    title: "No answer",
    advice: "Check that the server runs and that this machine reaches it. The console asks again by itself.",
  },
  401: {
    title: "The server needs a valid key",
    advice: "Enter a key with “Enter key” above. An operator makes one with “peltier keys create”.",
  },
  403: {
    title: "This key may not do this",
    advice: "Use a key that has the scope that the message names. An operator makes one with “peltier keys create”.",
  },
  404: { title: "Not found", advice: "It may have been deleted, or it belongs to another tenant." },
  429: { title: "Quota reached", advice: "Wait a moment and try again, or ask an operator for a larger quota." },
  503: { title: "The server cannot answer now", advice: "It is loading, stopping or full. Try again in a moment." },
};

/** A heading for an error and what the visitor can do about it. */
export function nextStep(error: Error): NextStep {
  const status = error instanceof ApiError ? error.status : -1;
  return BY_STATUS[status] ?? { title: "This did not work", advice: "" };
}
