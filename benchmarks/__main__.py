"""List and run the benchmarks.

`python benchmarks` lists them, `python benchmarks products gpu` runs two, `python benchmarks all --smoke` tries each.
"""

import ast
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Without names, one line each; with names (or "all"), run them in turn with the options given after the names."""
    files = {path.stem: path for path in sorted(HERE.glob("*.py")) if not path.stem.startswith("_")}
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    if not names:
        for name, path in files.items():
            summary = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
            print(f"{name:12s} {summary}")
        return
    unknown = sorted(set(names) - set(files) - {"all"})
    if unknown:
        raise SystemExit(f"no benchmark is called {unknown[0]}; there are: {', '.join(files)}")
    for name in files if "all" in names else names:
        print(f"\n== {name}", flush=True)
        subprocess.run([sys.executable, str(files[name]), *options], check=True)


if __name__ == "__main__":
    main()
