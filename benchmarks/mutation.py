"""Do the tests bite? One change at a time in the certificates and losses; does a fast selection of tests notice?

Run ``python benchmarks/mutation.py`` (an hour), ``--file``, ``--list`` or ``--smoke`` (seconds). A mutant is a copy of
the package, in a temporary folder that comes first on the path, with one operator, sign, constant or rounding pad
altered. It is killed if a test fails or runs out of time; a mutant that cannot be imported is invalid and not counted.
Each runs in a process forked from one that has loaded jax, SciPy and pytest, but not jaxbounds.
"""

import ast
import contextlib
import copy
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from _record import HERE, RESULTS, finish, parser, table

ROOT = HERE.parent
PACKAGE = ROOT / "jaxbounds"
NOTES = HERE / "mutation_notes.json"
PASSED, FAILED, INVALID = 0, 1, 9
WARM = ("jax.numpy", "jax.scipy.linalg", "scipy.sparse", "scipy.linalg", "scipy.optimize", "scipy.special", "optax",
        "sklearn.datasets", "mpmath", "pytest", "hypothesis")  # fmt: skip
SMOKE = ("rounding.py:growth:1.0 -> 2.0", "rounding.py:up:+ -> -", "rounding.py:down:- -> +")

# Files to mutate -> the tests that look at them, those that kill soonest first; tests/test_mutants.py for all.
TIGHT, ROUNDING, SECOND, LOO, LOSSES, SECANT = (
    f"tests/test_{name}.py" for name in ("tightness", "rounding", "second_order", "leave_one_out", "losses", "secant")
)
FIRST = [
    f"{TIGHT}::test_radius", f"{TIGHT}::test_one_row_re_evaluated",
    f"{ROUNDING}::test_changes_below_the_rounding[suggested-hinge]",
    f"{ROUNDING}::test_changes_below_the_rounding[suggested-huber]",
    f"{ROUNDING}::test_another_penalty_is_counted_at_its_own_strength",
    f"{ROUNDING}::test_exact_regions_are_inside[0-False]",
]  # fmt: skip
NEWTON = [
    f"{SECOND}::test_every_shape[300-20-False]", f"{SECOND}::test_every_shape[30-400-False]",
    f"{SECOND}::test_conjugate_gradients_where_no_inverse_fits",
    f"{SECOND}::test_sparse_penalties[squared_hinge-elastic_net]", f"{SECOND}::test_sparse_penalties[logistic-l1]",
    f"{SECOND}::test_piecewise_quadratic_is_exact[breast_cancer-smoothed_hinge]",
    f"{SECOND}::test_logistic_is_nearly_exact[breast_cancer-0.01]", f"{SECOND}::test_screening_moves_the_point",
    f"{SECOND}::test_optimum_to_45_digits_is_inside[0-False]",
]  # fmt: skip
REMOVED = [
    f"{LOO}::test_ridge_in_sixty_digits", f"{LOO}::test_a_row_at_its_kink",
    f"{LOO}::test_products_in_the_metric_of_the_inverse", f"{LOO}::test_half_trained_models[logistic]",
    f"{LOO}::test_half_trained_models[huber]", f"{LOO}::test_every_row_of_a_smoothed_hinge_is_exact",
    f"{LOO}::test_logistic_decides_the_labels_of_digits[0.001]",
    f"{LOO}::test_more_columns_than_rows_use_the_kernel[squared_hinge]",
    f"{LOO}::test_widths_are_those_of_the_formula",
]  # fmt: skip
PIECES = [
    f"{LOSSES}::test_{name}" for name in (
        "values_duals_and_conjugates", "fenchel_young_is_never_below_the_truth_and_tight", "logistic_far_out",
        "fenchel_young_refuses_infeasible_and_nan", "subdifferentials_at_kinks", "curvature_is_exact_away_from_kinks",
        "curvature_contains_every_secant_slope", "dual_step_maximises_its_objective", "empty_and_far_coordinates",
    )
]  # fmt: skip
SLOPES = [
    *(
        f"{SECANT}::test_piecewise_slopes_are_enclosed_tightly_and_exactly_away_from_kinks[{name}-host]"
        for name in ("smoothed_hinge(0.5)", "smoothed_hinge(1e-10)", "squared_hinge", "huber(0.7)", "huber(1e-8)")
    ),
    f"{SECANT}::test_squared_and_hinge", f"{SECANT}::test_kinks_and_which_losses_have_them",
    f"{SECANT}::test_users_losses[host]",
    f"{SECANT}::test_nothing_is_known_of_bad_numbers[logistic]",
    f"{SECANT}::test_logistic_slopes_are_enclosed_and_tight[host]",
]  # fmt: skip
TESTS = {
    "certificates/ball.py": FIRST, "certificates/cached.py": FIRST, "certificates/centre.py": FIRST,
    "certificates/four_point.py": FIRST, "certificates/ledger.py": FIRST, "certificates/region.py": FIRST,
    "certificates/theorem1.py": FIRST, "certificates/partial.py": FIRST, "rounding.py": FIRST,
    "certificates/curvature.py": NEWTON, "certificates/ellipsoid.py": NEWTON, "certificates/inverse.py": NEWTON,
    "certificates/newton_pass.py": NEWTON, "certificates/renewed.py": NEWTON, "certificates/sandwich.py": NEWTON,
    "certificates/steps.py": NEWTON, "certificates/leave_one_out.py": REMOVED, "certificates/crossings.py": REMOVED,
    "certificates/whitened.py": REMOVED, "losses.py": [*PIECES, *SLOPES], "logistic.py": [*PIECES, *SLOPES],
    "secant.py": SLOPES,
}  # fmt: skip
OWN = "tests/test_mutants.py"

# ---------------------------------------------------------------- what is altered

SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
         ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt}  # fmt: skip
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">",
         ast.LtE: "<="}  # fmt: skip
NAMES = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "norm_up": "norm_down",
         "norm_down": "norm_up"}  # fmt: skip
PADS = {"up": None, "down": None, "growth": 0.0, "dot_error": 0.0, "score_pad": 0.0, "coordinate_pad": 0.0,
        "dual_vector_pad": 0.0}  # fmt: skip  # None: the argument itself
UNITS = ("U", "TINY", "TINY_NORM", "PAD", "_PAD")
NUMBERS = {0.25: 0.5, 0.5: 1.0, 1: 2, 2: 1, 4: 2, 8: 4, 16: 0, 32: 0, 64: 0}
KINDS = ("arithmetic", "comparison", "min/max", "sign", "constant", "root", "condition", "rounding pad")


@dataclass(frozen=True)
class Mutant:
    """One altered place: the which-th node, in the order of ast.walk, and the which-th alteration of it."""

    file: str
    function: str
    kind: str
    what: str
    node: int
    choice: int
    line: int

    @property
    def key(self) -> str:
        """What the notes call it."""
        return f"{self.file.removeprefix('certificates/')}:{self.function}:{self.what}"


def alterations(node: ast.AST):
    """(kind, old -> new, replacement) for one node."""
    if isinstance(node, ast.BinOp):
        swap = SWAPS.get(type(node.op))
        if isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Name) and node.right.id in UNITS:
            yield "rounding pad", f"* {node.right.id} -> * 0", ast.BinOp(node.left, ast.Mult(), ast.Constant(0.0))
        elif swap:
            kind, what = "arithmetic", f"{SIGNS[type(node.op)]} -> {SIGNS[swap]}"
            yield kind, what, ast.BinOp(node.left, swap(), node.right)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        old, new = type(node.ops[0]), SWAPS[type(node.ops[0])]
        edge = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}[old]
        for other in (new, edge):
            what = f"{SIGNS[old]} -> {SIGNS[other]}"
            yield "comparison", what, ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", f"-{ast.unparse(node.operand)} -> +", node.operand
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        yield "condition", f"~{ast.unparse(node.operand)} -> not negated", node.operand
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in NAMES:
            func = copy.deepcopy(node.func)
            setattr(func, "attr" if isinstance(func, ast.Attribute) else "id", NAMES[name])
            kind = "rounding pad" if name.startswith("norm") else "min/max"
            yield kind, f"{name} -> {NAMES[name]}", ast.Call(func, node.args, node.keywords)
        elif name in PADS and node.args:
            new = node.args[0] if PADS[name] is None else ast.Constant(PADS[name])
            yield "rounding pad", f"{name}() -> {'its argument' if PADS[name] is None else '0'}", new
        elif name in ("root", "sqrt") and node.args:
            yield "root", f"{name}() dropped", node.args[0]
        elif name == "where" and len(node.args) == 3 and isinstance(node.func, ast.Attribute):
            yield "condition", "where() swapped", ast.Call(node.func, [node.args[i] for i in (0, 2, 1)], [])
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value in NUMBERS:
        new = type(node.value)(NUMBERS[node.value])
        yield "constant", f"{node.value!r} -> {new!r}", ast.Constant(new)


def untouched(tree: ast.Module) -> set[int]:
    """Nodes that hold no mathematics: annotations, decorators, defaults, subscripts, keywords such as axis=0."""
    found = set()
    for node in ast.walk(tree):
        parts = []
        if isinstance(node, ast.FunctionDef):
            parts = [*node.decorator_list, node.args, node.returns]
        elif isinstance(node, ast.ClassDef):
            parts = node.decorator_list
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.keyword) and node.arg == "axis":
            parts = [node]
        elif isinstance(node, ast.Raise):
            parts = [node]
        found.update(id(inner) for part in parts if part is not None for inner in ast.walk(part))
    return found


def mutants_of(file: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines; the same description twice in a function gets #2 and so on."""
    tree = ast.parse((PACKAGE / file).read_text())
    owner, skip = {}, untouched(tree)

    def visit(node, name):
        for child in ast.iter_child_nodes(node):
            own = isinstance(child, ast.FunctionDef | ast.ClassDef)
            inner = f"{name}.{child.name}".lstrip(".") if own else name
            owner[id(child)] = inner
            visit(child, inner)

    visit(tree, "")
    places = [
        (node.lineno, node.col_offset, number, choice, owner.get(id(node)) or "module", kind, what)
        for number, node in enumerate(ast.walk(tree))
        if id(node) not in skip
        for choice, (kind, what, _) in enumerate(alterations(node))
    ]
    result, seen = [], defaultdict(int)
    for line, _, number, choice, function, kind, what in sorted(places):
        seen[function, what] += 1
        count = seen[function, what]
        result.append(Mutant(file, function, kind, what + f" #{count}" * (count > 1), number, choice, line))
    return result


def mutated(mutant: Mutant) -> str:
    """The text of the altered file."""
    tree = ast.parse((PACKAGE / mutant.file).read_text())
    target = list(ast.walk(tree))[mutant.node]
    new = list(alterations(target))[mutant.choice][2]

    class Replace(ast.NodeTransformer):
        def visit(self, node):
            return new if node is target else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Replace().visit(tree)))


def sample(pool: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """A random choice, spread over files and kinds: the groups take turns, files with more mutants more often."""
    rng, groups = random.Random(seed), defaultdict(list)
    for mutant in pool:
        groups[mutant.file, mutant.kind].append(mutant)
    order = []
    for members in groups.values():
        rng.shuffle(members)
        # the k-th of a group of size s comes at sqrt-spaced times, so that small groups are seen but do not crowd
        order += [((k + rng.random()) / len(members) ** 0.5, m) for k, m in enumerate(members)]
    return [mutant for _, mutant in sorted(order, key=lambda pair: pair[0])[:count]]


# ---------------------------------------------------------------- running


def warm() -> None:
    """Load what every test loads, but not jaxbounds, and start no thread."""
    for name in WARM:
        importlib.import_module(name)
    sys.path.insert(0, str(ROOT / "tests"))
    for name in ("oracle", "exact"):
        importlib.import_module(name)
    assert "jaxbounds" not in sys.modules


def trial(folder: Path, tests: list[str], limit: float) -> tuple[str, str]:
    """("passed", "killed", "timeout" or "invalid", the first test that failed) of the package in a folder."""
    log = folder / "log"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        code = INVALID
        try:
            os.setsid()
            code = _inside(folder, log, tests)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            lines = log.read_text(errors="replace").splitlines()
            first = next((line.split(" ")[1] for line in lines if line.startswith(("FAILED ", "ERROR "))), "")
            return {PASSED: "passed", INVALID: "invalid"}.get(code, "killed"), first
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout", ""


def _inside(folder: Path, log: Path, tests: list[str]) -> int:
    """In the child: import the mutant and run the tests."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(ROOT)
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    try:
        import jaxbounds
    except Exception:
        traceback.print_exc()
        return INVALID
    assert Path(jaxbounds.__file__).is_relative_to(folder), jaxbounds.__file__
    import pytest

    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # for modules that are loaded already
    code = pytest.main(["-x", "-q", "--tb=line", "-p", "no:cacheprovider", *quiet, *tests])
    sys.stdout.flush()
    return PASSED if code == 0 else FAILED


def selection(file: str, smoke: bool) -> list[str]:
    """The tests for a file."""
    if smoke:
        return [f"{ROUNDING}::test_changes_below_the_rounding[suggested-hinge]"]
    return [*([OWN] if (ROOT / OWN).exists() else []), *TESTS[file]]


def run(chosen: list[Mutant], limit: float, minutes: float, smoke: bool) -> dict:
    """Try every mutant, after the package as it is; none is begun after so many minutes."""
    outcomes, start = [], time.perf_counter()
    tests_of = {mutant.file: selection(mutant.file, smoke) for mutant in chosen}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu",
                       "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg",
                       "JAXBOUNDS_TEST_CACHE": str(folder / "cache")}  # fmt: skip
        shutil.copytree(PACKAGE, folder / "jaxbounds", ignore=shutil.ignore_patterns("__pycache__"))
        sys.dont_write_bytecode = True  # a mutant may have the size and the second of the file before it
        warm()
        baseline = {}
        for tests in {tuple(tests): None for tests in tests_of.values()}:
            began = time.perf_counter()
            outcome, first = trial(folder, list(tests), 10 * limit)
            if outcome != "passed":
                text = (folder / "log").read_text(errors="replace")[-3000:]
                raise SystemExit(f"{text}\nthe tests do not pass on the package as it is: {outcome} {first}")
            baseline[tests] = time.perf_counter() - began
            print(f"{baseline[tests]:6.1f} s for {len(tests)} selected tests on the package as it is", flush=True)
        for number, mutant in enumerate(chosen, 1):
            target, began, tests = folder / "jaxbounds" / mutant.file, time.perf_counter(), tests_of[mutant.file]
            if began - start > 60 * minutes:
                break
            text = target.read_text()
            target.write_text(mutated(mutant))
            outcome, first = trial(folder, tests, max(limit, 5 * baseline[tuple(tests)]))
            target.write_text(text)
            seconds = time.perf_counter() - began
            outcomes.append({
                "key": mutant.key, "file": mutant.file, "kind": mutant.kind, "line": mutant.line,
                "source": (PACKAGE / mutant.file).read_text().splitlines()[mutant.line - 1].strip(),
                "outcome": outcome, "by": first.removeprefix("tests/"), "seconds": round(seconds, 1),
            })  # fmt: skip
            print(f"{number:4}/{len(chosen)} {seconds:6.1f} s {outcome:8} line {mutant.line}: {mutant.key}  {first}",
                  flush=True)  # fmt: skip
    outcomes.sort(key=lambda found: (list(TESTS).index(found["file"]), found["line"], found["key"]))
    return {"mutants": outcomes, "seconds": round(time.perf_counter() - start), "baseline":
            [round(seconds, 1) for seconds in baseline.values()]}  # fmt: skip


# ---------------------------------------------------------------- report


def _rates(mutants: list[dict], field: str) -> list[list[str]]:
    """One row for each value of a field: counted, killed, survived, share."""
    groups = defaultdict(list)
    for mutant in mutants:
        groups[mutant[field]].append(mutant["outcome"])
    rows = []
    for name in sorted(groups):
        killed = sum(outcome != "passed" for outcome in groups[name])
        total = len(groups[name])
        rows.append([name, str(total), str(killed), str(total - killed), f"{killed / total:.0%}"])
    return rows


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    notes = json.loads(NOTES.read_text()) if NOTES.exists() else {}
    every = payload["mutants"]
    counted = [mutant for mutant in every if mutant["outcome"] != "invalid"]
    alive = [mutant for mutant in counted if mutant["outcome"] == "passed"]
    killed, slow = len(counted) - len(alive), sum(mutant["outcome"] == "timeout" for mutant in counted)
    later = sum(mutant["outcome"] != "passed" and "first" in mutant for mutant in counted)
    looked = sum(mutant["key"] in notes for mutant in alive)
    head = ["", "mutants", "killed", "survived", "share"]
    rows = [[f"{m['key']} (line {m['line']})".replace("|", "\\|"), notes.get(m["key"], "")] for m in alive]
    again = f"""

Tests were then added for the holes among the survivors (tests/test_mutants.py, and one that the selection had left \
out): {later} more are noticed now, and the tables count them as killed. As these tests were written for these very \
changes, {killed / max(len(counted), 1):.0%} is no estimate for other ones.""" * (later > 0)
    text = f"""## Do the tests bite? (`benchmarks/mutation.py`)

{len(counted)} of {payload["pool"]:,} possible single changes to the certificates, losses and rounding allowances \
(seed {payload["seed"]}, spread over files and kinds; {len(every) - len(counted)} more could not be imported), each \
against a fast selection of the tests: **{killed - later} noticed, {(killed - later) / max(len(counted), 1):.0%}**, \
{slow} of them by running out of time. {payload["seconds"] / 60:.0f} minutes, \
{payload["seconds"] / max(len(every), 1):.1f} s a mutant. The rest of the test suite \
was not run against them. Files and kinds with few mutants are drawn more often than their share.{again}

{table(["file", *head[1:]], _rates(counted, "file"))}

{table(["kind of change", *head[1:]], _rates(counted, "kind"))}"""
    if not rows:
        return text
    return f"""{text}

Survivors ({looked} of {len(alive)} looked at; the reasons are from reading the code, "open" marks holes that are left):

{table(["change", "why the selected tests do not notice"], rows)}"""


def main() -> None:
    """Make the mutants, run them, print and record."""
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=150, help="how many mutants, 0 for all")
    options.add_argument("--file", action="append", help="only mutants of this file, such as certificates/ball.py")
    options.add_argument("--key", action="append", help="only the mutants of this name, as --list prints it")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--limit", type=float, default=60.0, help="least time limit of a mutant in seconds")
    options.add_argument("--minutes", type=float, default=600.0, help="begin no mutant after so many minutes")
    options.add_argument("--again", action="store_true", help="try survivors of the record again (or those of --key)")
    options.add_argument("--list", action="store_true", help="print the chosen mutants and run none")
    options = options.parse_args()
    pool = [mutant for file in TESTS if file in (options.file or TESTS) for mutant in mutants_of(file)]
    if options.again and not options.key:
        record = json.loads((RESULTS / "mutation.json").read_text())["payload"]["mutants"]
        options.key = [mutant["key"] for mutant in record if mutant["outcome"] == "passed"]
    if options.smoke or options.key:
        keys = SMOKE if options.smoke else options.key
        chosen = [mutant for mutant in pool if mutant.key in keys]
        assert len(chosen) == len(set(keys)), (keys, [mutant.key for mutant in chosen])
    else:
        chosen = sample(pool, options.count or len(pool), options.seed)
    if options.list:
        print(*(f"{m.kind:12} line {m.line:3}: {m.key}" for m in chosen), sep="\n")
        print(f"{len(chosen)} of {len(pool)}")
        return
    found = run(chosen, options.limit, options.minutes, options.smoke)
    payload = {"seed": options.seed, "pool": len(pool), **found}
    if options.again:
        payload = json.loads((RESULTS / "mutation.json").read_text())["payload"]
        news = {mutant["key"]: mutant | {"first": "passed"} for mutant in found["mutants"]}
        payload["mutants"] = [news.get(mutant["key"], mutant) for mutant in payload["mutants"]]
    elif options.key or options.file:
        options.smoke = True  # a part is no record
    finish("mutation", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
