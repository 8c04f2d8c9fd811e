import { Button } from "@/widgets/button/Button";
import { nextThemeChoice, setThemeChoice, useThemeChoice } from "./theme";

const NAMES = { system: "Auto", light: "Light", dark: "Dark" };

export function ThemeButton() {
  const choice = useThemeChoice();
  return (
    <Button kind="quiet" onClick={() => setThemeChoice(nextThemeChoice(choice))} title="Change the theme">
      <span className="visually-hidden">Theme: </span>
      {NAMES[choice]}
    </Button>
  );
}
