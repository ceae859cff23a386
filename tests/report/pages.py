"""Made-up workdirs beside that of conftest.py, and a page taken apart."""

import base64
import gzip
import json
from html.parser import HTMLParser

import numpy as np
from PIL import Image

CLAIM = {"claim": "it vanishes", "source": "Bengio 1994", "expected": "slope < 0", "measured": -0.4, "holds": True}
CLAIMS = [
    CLAIM,
    CLAIM | {"claim": "it survives", "holds": False},
    CLAIM | {"claim": "gates win", "holds": False, "contested": "Greff 2017"},
    CLAIM | {"claim": "it is fast", "measured": None, "holds": False, "not_measured": "no torch"},
]
SCORES = {"seed=1": 0.8, "seed=2": 0.9}
STEPS = [0, 5, 20]


def comparison(folder, name="music", models=("lstm", "lstm-wide"), claims=CLAIMS, config=None):
    """A study's workdir with trained models, two seeds each, as `run_entries` and `write_report` leave it."""
    write(folder / "config.json", {"experiment": name, "config": config or {"train": {"learning_rate": 0.01}}})
    for at, model in enumerate(models):
        seeds = [
            {"label": label, "step": 20, "scores": {"accuracy": score}, "stopped": None, "diverged": False}
            for label, score in SCORES.items()
        ]
        summary = {"name": model, "cell": model.split("-")[0], "parameters": 100 + at, "steps": 20, "seconds": 1.5}
        write(folder / model / "summary.json", summary | {"replicas": seeds})
        rows = [
            {"step": step, "kind": kind, "split": "valid", "loss": 2 / (1 + step) + 0.1 * replica, "replica": replica}
            for step in STEPS
            for replica in range(2)
            for kind in ("train", "eval")
        ]
        (folder / model / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        norms = -0.1 * np.arange(8)[:, None] * np.ones((3, 1, 3)) + np.array([-0.1, 0, 0.1])
        np.savez(folder / model / "norms.npz", step=np.array(STEPS), forward=norms.astype(np.float32))
    write(folder / "claims.json", {"study": name, "claims": claims, "seconds": 12.3})
    Image.new("RGB", (40, 20), "red").save(folder / "scores.png")
    (folder / "report.md").write_text("# The title\n\nWords.\n\n![A caption](scores.png)\n\n## Claims\n\n- one\n")
    return folder


def write(path, value):
    """JSON in a folder that is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


class Page(HTMLParser):
    """tags: [(tag, attributes)]; text: all that is shown; of: {id of a script: what it holds}."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.text, self.of, self._script = [], "", {}, None
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._script = dict(attrs).get("id", "own") if tag in ("script", "style") else None

    def handle_data(self, data):
        if self._script is None:
            self.text += data
        else:
            self.of[self._script] = self.of.get(self._script, "") + data

    def handle_endtag(self, tag):
        self._script = None

    @property
    def data(self):
        """What the charts are drawn from."""
        return json.loads(gzip.decompress(base64.b64decode(self.of["data"])))
