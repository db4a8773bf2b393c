"""The soundness campaign: hostile random problems, their optima in 60 digits, and every certificate against them.

`draw` makes cases (a stored model, changes, test rows), `truth` solves the changed problems without the library,
`check` compares each certificate's intervals with them, `tally` counts. benchmarks/soundness.py runs it for hours.
"""
