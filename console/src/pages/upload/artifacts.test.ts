import { expect, test } from "vitest";
import { pairUp } from "./artifacts";

const file = (name: string) => new File([], name);

test("a report belongs to the artifact of its name", () => {
  const files = ["a.safetensors", "b.safetensors", "a.report.json", "c.report.json"].map(file);
  const { artifacts, lonely } = pairUp(files);
  expect(artifacts.map(({ file, report }) => [file.name, report?.name])).toEqual([
    ["a.safetensors", "a.report.json"],
    ["b.safetensors", undefined],
  ]);
  expect(lonely).toEqual(["c.report.json"]);
});
