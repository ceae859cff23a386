"""The studies, one module each: `python -m experiments.NAME --workdir=DIR`, `--help` for what it asks and takes."""
