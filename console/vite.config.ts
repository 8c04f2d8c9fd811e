import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const server = process.env.PELTIER_URL ?? "http://127.0.0.1:8000";
const routes = ["/v1", "/info", "/metrics", "/ready", "/health", "/rerank", "/docs", "/openapi.json"];

export default defineConfig({
  // Relative addresses, so that the console works behind a path.
  base: "./",
  plugins: [react()],
  resolve: { alias: { "@": new URL("./src", import.meta.url).pathname } },
  build: {
    outDir: "../server/peltier_server/console",
    emptyOutDir: true,
    // The licences of the packages that the build contains.
    license: { fileName: "licenses.md" },
    // The content security policy allows no `data:` addresses.
    assetsInlineLimit: 0,
    // ECharts is larger than the warning allows; it is in a chunk of its own.
    chunkSizeWarningLimit: 700,
  },
  // The server refuses a request whose origin is not its own host, so the proxy keeps the host.
  server: { proxy: Object.fromEntries(routes.map((route) => [route, { target: server, changeOrigin: false }])) },
});
