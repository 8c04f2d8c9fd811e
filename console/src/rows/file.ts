// The text of a chosen file, unpacked if it is gzipped.

/** Larger files belong to `peltier compare` and `peltier predict --file`, which read them row by row. */
export const MAX_FILE_BYTES = 20_000_000;

export async function readTextFile(file: File): Promise<string> {
  if (file.size > MAX_FILE_BYTES) {
    throw new Error(`${file.name} has ${file.size} bytes; this page reads files of at most ${MAX_FILE_BYTES}.`);
  }
  if (!file.name.endsWith(".gz")) return file.text();
  const unpacked = file.stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(unpacked).text();
}
