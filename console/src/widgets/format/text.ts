/** A message of the server, which begins in lower case and has no full stop, as a sentence. */
export function sentence(message: string): string {
  const text = message.trim();
  const end = /[.!?…]$/.test(text) || text === "" ? "" : ".";
  return text.charAt(0).toUpperCase() + text.slice(1) + end;
}
