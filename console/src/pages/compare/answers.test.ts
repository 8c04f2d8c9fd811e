import { expect, test } from "vitest";
import type { Prediction } from "@/api/predictions";
import type { Task } from "@/api/tasks";
import { answerOf, kindOfBoth, shownAs } from "./answers";

test("of a prediction only the part that is judged is sent", () => {
  const entity = { start: 0, end: 3, label: "person", text: "Ada", score: 0.9 };
  expect(answerOf("token-classification", { entities: [entity] } as Prediction)).toEqual([
    { start: 0, end: 3, label: "person" },
  ]);
  expect(answerOf("classification", { label: "yes", score: 1, scores: { yes: 1 } } as Prediction)).toBe("yes");
  expect(answerOf("ranking", { score: 0.5 } as Prediction)).toBe(0.5);
});

test("a list is shown in words, and so is none", () => {
  expect([shownAs("multilabel", ["a", "b"]), shownAs("multilabel", [])]).toEqual(["a, b", "none"]);
  expect([shownAs("span", ["a", "b"]), shownAs("span", [])]).toEqual(["a or b", "no answer"]);
  expect([shownAs("regression", 0.5), shownAs("classification", null)]).toEqual(["0.5", ""]);
});

test("two types of tasks, and embeddings, cannot be compared", () => {
  const task = (reference: string, type: string) => ({ reference, type }) as Task;
  expect(kindOfBoth(task("a", "span"), task("b", "span"))).toBe("span");
  expect(() => kindOfBoth(task("a", "span"), task("b", "ranking"))).toThrow("a is a span task and b a ranking task");
  expect(() => kindOfBoth(task("a", "embedding"), task("b", "embedding"))).toThrow("have no right answer");
});
