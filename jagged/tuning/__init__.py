"""Configs of the kernels: where they come from, and how to find better ones for your GPU or model.

A kernel's config (block sizes, warps, which of several forms) decides its speed. Those shipped were
measured on an H200 at common sizes. What a kernel would run with, and which file says so:

    python -m jagged.tuning show softmax --shape rows=1024,length=256,width=128

`jagged.tuning.configs` says in which order tables are asked. To find better configs for another
GPU, or for the sizes of your model, on that GPU:

    with jagged.tuning.trace("calls.json"):     # which calls the model makes
        train_a_few_steps()

    python -m jagged.tuning tune --from-trace calls.json --out tables --budget 1800

Without a trace, `--op` and `--shape` name calls by hand, and nothing at all takes a standard set.
`--effort quick` (the default) climbs from the present config to better ones, `--effort full` tries
the whole space of each kernel. A run that was stopped goes on when it is started again with the
same folder (`tables/journal.jsonl`); Ctrl-C ends a run and writes what was found. Then

    export HELION_HEURISTIC_DIR=tables          # or jagged.tuning.use_tables("tables")

and every process that sees it uses them, with the shipped ones for what they leave out. The files
are plain Python that a person can read: see `jagged.tuning.tables`. A table belongs to the version
of the kernels that it was tuned for; `python -m jagged.tuning check` says whether it still fits.
A file that is damaged, or a config of another form, is an error that names it, never passed over;
`tune` with the same folder leaves such configs out and finds others.

`python -m jagged.tuning export` writes what a call launches as one file without Helion and jagged.

Helion's own search, which knows more dimensions and takes longer, makes such files too, for kernels
without forms of their own:

    python -m helion.autotuner.aot_runner --output-dir runs -- \\
        python -m jagged.tuning helion --op to_padded --out tables
"""

from jagged.tuning.configs import use_tables
from jagged.tuning.tracing import trace

__all__ = ["trace", "use_tables"]
