// The pages: their addresses, their names in the navigation, and how each is loaded.
import { type ComponentType, lazy } from "react";

export interface Page {
  path: string;
  /** The name in the navigation and in the command palette; a page without one is reached from another page. */
  title?: string;
  Component: ComponentType;
}

type Loaded = Promise<{ default: ComponentType }>;

const page = (path: string, title: string | undefined, load: () => Loaded): Page => ({
  path,
  title,
  Component: lazy(load),
});

/** In the order of the navigation; of two that match an address, the first is shown. */
export const PAGES: readonly Page[] = [
  page("/adapters", "Adapters", () => import("@/pages/adapters")),
  page("/adapters/:name", undefined, () => import("@/pages/adapter")),
  page("/trainings", "Trainings", () => import("@/pages/trainings")),
  page("/trainings/:id", undefined, () => import("@/pages/training")),
  page("/upload", "Upload", () => import("@/pages/upload")),
  page("/playground", "Playground", () => import("@/pages/playground")),
  page("/compare", "Compare", () => import("@/pages/compare")),
  page("/live", "Live", () => import("@/pages/live")),
  page("/tenants", "Tenants & keys", () => import("@/pages/tenants")),
  page("/audit", "Audit", () => import("@/pages/audit")),
  page("/reports", "Reports", () => import("@/pages/reports")),
];

export const HOME = "/adapters";
