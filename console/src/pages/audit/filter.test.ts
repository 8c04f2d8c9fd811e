import { expect, test } from "vitest";
import { changed, filterOf } from "./filter";

test("an address becomes a filter with times in UTC", () => {
  const local = "2026-11-21T10:00";
  const filter = filterOf(new URLSearchParams({ tenant: " acme ", actor: "", since: local, other: "x" }));
  expect(filter).toEqual({ tenant: "acme", since: new Date(local).toISOString() });
});

test("a field without a value leaves the address", () => {
  const query = changed(new URLSearchParams("tenant=acme&action=publish"), "tenant", "");
  expect(query.toString()).toBe("action=publish");
});
