"""A linear-chain conditional random field: tags that are scored together with the tag before.

The score of tags y_1 .. y_L is start[y_1] + sum_t logits_t[y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_L], and their
probability exp(score) / Z, where Z sums over all tag sequences of that length. Sources: Lafferty, McCallum, Pereira
2001, "Conditional random fields"; start and end as in Lample et al. 2016, "Neural architectures for named entity
recognition".

All functions take `CRFScores`, tags [T, B] and lengths [B]. What stands at t >= length, NaN included, changes nothing.
A row of length 0 has one tag sequence, the empty one, of probability 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from rnnjax.tasks.base import widen
from rnnjax.unroll.sequence import check_lengths, valid_steps


class CRFScores(NamedTuple):
    """logits [T, B, C] of each tag; transitions [C, C] from the tag before to the tag; start [C]; end [C]."""

    logits: jax.Array
    transitions: jax.Array
    start: jax.Array
    end: jax.Array


def log_likelihood(scores: CRFScores, tags: jax.Array, lengths: jax.Array | None = None) -> jax.Array:
    """log p(tags), [B], in nats."""
    return -step_losses(scores, tags, lengths).sum(0)


def step_losses(scores: CRFScores, tags: jax.Array, lengths: jax.Array | None = None) -> jax.Array:
    """[T, B] in nats, which sum over t to each row's -log p(tags), and are 0 at pads.

    That at t is what the step adds: to log Z of the tags so far, less what it adds to the score. One by itself can be
    negative.
    """
    logits, valid, last = _checked(scores, lengths)
    if not logits.size:
        return jnp.zeros(logits.shape[:2], logits.dtype)
    tags = jnp.where(valid, tags, 0)
    transitions, start, end = map(widen, scores[1:])
    chosen = jnp.take_along_axis(logits, tags[..., None], -1)[..., 0]
    arrived = jnp.concatenate([start[tags[:1]], transitions[tags[:-1], tags[1:]]])
    gained = chosen + arrived + jnp.where(last, end[tags], 0)
    forward = _forward(logits, transitions, start)
    totals = logsumexp(forward + jnp.where(last[..., None], end[None, None], 0), axis=-1)
    before = jnp.concatenate([jnp.zeros_like(totals[:1]), logsumexp(forward[:-1], axis=-1)])
    return jnp.where(valid, totals - before - gained, 0)


def viterbi(scores: CRFScores, lengths: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """(the tags of the highest score, int32 [T, B], 0 at pads; that score [B])."""
    logits, valid, last = _checked(scores, lengths)
    if not logits.size:
        return jnp.zeros(logits.shape[:2], jnp.int32), jnp.zeros(logits.shape[1], logits.dtype)
    transitions, start, end = map(widen, scores[1:])

    def step(best, now):
        logits, valid = now
        through = best[:, :, None] + transitions[None]
        after = through.max(1) + logits
        came_from = through.argmax(1).astype(jnp.int32)
        kept = valid[:, None]
        # At a pad the best is held, and the way back stays in its tag.
        stay = jnp.broadcast_to(jnp.arange(logits.shape[-1], dtype=jnp.int32)[None], came_from.shape)
        return jnp.where(kept, after, best), jnp.where(kept, came_from, stay)

    best, came_from = jax.lax.scan(step, start[None] + logits[0], (logits[1:], valid[1:]))
    ended = best + end[None]
    tag = ended.argmax(-1).astype(jnp.int32)

    def back(tag, came_from):
        before = jnp.take_along_axis(came_from, tag[:, None], -1)[:, 0]
        return before, tag

    first, rest = jax.lax.scan(back, tag, came_from, reverse=True)
    tags = jnp.concatenate([first[None], rest])
    return jnp.where(valid, tags, 0), jnp.where(valid[0], ended.max(-1), 0)


def _checked(scores: CRFScores, lengths: jax.Array | None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(logits with zeros at pads, which steps [T, B] are valid, which of them is the last)."""
    time, batch, _ = scores.logits.shape
    lengths = jnp.full(batch, time) if lengths is None else check_lengths(lengths, time, (batch,)).clip(0, time)
    valid = valid_steps(lengths, time)
    last = jnp.arange(time)[:, None] == lengths[None] - 1
    return jnp.where(valid[..., None], widen(scores.logits), 0), valid, last


def _forward(logits: jax.Array, transitions: jax.Array, start: jax.Array) -> jax.Array:
    """[T, B, C], the log of the sum over all tags before t of the scores up to t, by the tag at t."""

    @jax.checkpoint  # the sum's terms, [B, C, C] a step, are cheaper to compute again than to keep
    def step(forward, logits):
        after = logsumexp(forward[:, :, None] + transitions[None], axis=1) + logits
        return after, after

    first = start[None] + logits[0]
    _, rest = jax.lax.scan(step, first, logits[1:])
    return jnp.concatenate([first[None], rest])
