// What the server is.
import { queryOptions } from "@tanstack/react-query";
import { answer, api } from "./server";

export function serverInfo() {
  return queryOptions({
    queryKey: ["info"],
    queryFn: ({ signal }) => answer(api.GET("/info", { signal })),
    staleTime: 60_000,
  });
}
