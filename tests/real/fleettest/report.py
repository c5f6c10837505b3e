"""Tables and verdicts on standard output, and the same as JSON."""

import json


class Report:
    """Collects bars: what was demanded, what was found, whether that is enough."""

    def __init__(self):
        self.bars = []
        self.figures = {}

    def figure(self, key, value):
        self.figures[key] = value

    def bar(self, name, passed, found):
        self.bars.append({"bar": name, "passed": bool(passed), "found": str(found)})
        print(f"  {verdict(passed)}  {name}: {found}", flush=True)

    @property
    def passed(self):
        return bool(self.bars) and all(bar["passed"] for bar in self.bars)

    def write_json(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"passed": self.passed, "bars": self.bars, "figures": self.figures}, file, indent=1)
            file.write("\n")

    def finish(self, path):
        """Prints the summary, writes the JSON file if one is wanted, returns the exit status."""
        print("\n== bars")
        for bar in self.bars:
            print(f"{verdict(bar['passed'])}  {bar['bar']}: {bar['found']}")
        print(verdict(self.passed), flush=True)
        if path:
            self.write_json(path)
        return 0 if self.passed else 1


def verdict(passed):
    return "PASS" if passed else "FAIL"


def heading(text):
    print(f"\n== {text}", flush=True)


def table(rows):
    """Rows of equal length; the first is the head. Columns are as wide as they need."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in texts) for i in range(len(texts[0]))]
    for row in texts:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip(), flush=True)


def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"
