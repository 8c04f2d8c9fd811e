// Reads the header of a safetensors file in the browser, so that what is refused can be shown at its place.

const LENGTH_BYTES = 8;
const MAX_HEADER_BYTES = 4 * 1024 * 1024;

export interface TensorEntry {
  name: string;
  shape: string;
}

export interface Header {
  manifest: Record<string, unknown>;
  tensors: readonly TensorEntry[];
}

/** The manifest and the tensors of an artifact; null for a file that is none. The server judges it, not this. */
export async function readHeader(file: Blob): Promise<Header | null> {
  try {
    const start = new DataView(await file.slice(0, LENGTH_BYTES).arrayBuffer());
    const length = Number(start.getBigUint64(0, true));
    if (length > MAX_HEADER_BYTES) return null;
    const { __metadata__: metadata, ...entries } = JSON.parse(
      await file.slice(LENGTH_BYTES, LENGTH_BYTES + length).text(),
    );
    const manifest: unknown = JSON.parse(metadata.manifest);
    if (typeof manifest !== "object" || manifest === null) return null;
    return {
      manifest: manifest as Record<string, unknown>,
      tensors: Object.entries(entries).map(([name, entry]) => ({
        name,
        shape: JSON.stringify((entry as { shape?: unknown } | null)?.shape),
      })),
    };
  } catch {
    return null;
  }
}
