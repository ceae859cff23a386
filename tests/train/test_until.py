"""A training that has come to what it is for ends there, each replica by itself."""

from cases import config_of, model_of, rows_of

from rnnjax.cells import Elman
from rnnjax.tasks import Adding
from rnnjax.train.loop import train
from rnnjax.train.replicas import Replica

TASK = Adding(4)


def test_a_replica_ends_where_its_scores_say_so(tmp_path):
    """A step size of 1e-30 changes nothing, so that patience ends the other one an evaluation later."""
    config = config_of(learning_rate=1e-30, steps=12, eval_every=4, optimizer="sgd", clip_norm=0.0, patience=1)
    replicas = [Replica(model_of(Elman(2, 3), TASK, seed, "float32"), seed) for seed in (0, 1)]
    seen = []

    def until(scores):
        seen.append(scores)
        return "it is enough" if len(seen) == 2 else None

    trained = train(replicas, TASK, config, tmp_path, until=until)
    told = [(row["step"], row["replica"], row["why"]) for row in rows_of(tmp_path) if row["kind"] == "stopped"]
    assert told == [(4, 1, "it is enough"), (8, 0, trained[0].stopped)]
    assert trained[0].stopped.startswith("no lower loss in 1 evaluations") and trained[1].stopped == "it is enough"
    assert [int(one.state.step) for one in trained] == [8, 4] and not any(one.diverged for one in trained)
    tested = [row for row in rows_of(tmp_path) if row["kind"] == "eval"]
    assert [scores["test"]["loss"] for scores in seen] == [row["loss"] for row in tested]
