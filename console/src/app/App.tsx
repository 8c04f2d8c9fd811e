import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { Router } from "wouter";
import { queryClient } from "@/api/queries";
import { NoticeProvider } from "@/widgets/notice/NoticeProvider";
import { useHashLocation } from "./hash";
import { Shell } from "./Shell";

export function App() {
  return (
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <Router hook={useHashLocation}>
          <NoticeProvider>
            <Shell />
          </NoticeProvider>
        </Router>
      </QueryClientProvider>
    </StrictMode>
  );
}
