"""The studies' own pictures as they stand inside a page: WebP, a third of PNG's bytes for the same pixels."""

import base64
import io
import pathlib
from collections.abc import Sequence

from PIL import Image

from rnnjax.report.discover import Study
from rnnjax.report.run_files import ReportError

SMALL = 900
"""Pixels of width to which pictures are brought where they don't all fit as they are."""

_LARGEST = 40_000_000  # pixels: what claims to be larger is no picture of a study


def embed(studies: Sequence[Study], room: int) -> tuple[dict[pathlib.Path, str], str]:
    """({picture: data URI} that together take `room` bytes at most, what was left out in words).

    All as they are, or else all smaller, or else the first of every study before the second of any. One that cannot be
    read is a problem of its study.
    """
    most = max((len(study.pictures) for study in studies), default=0)
    order = [
        (study, study.pictures[turn][0]) for turn in range(most) for study in studies if turn < len(study.pictures)
    ]
    uris, left_out = _fitting(order, room, small=False)
    if not left_out:
        return uris, ""
    uris, left_out = _fitting(order, room, small=True)
    others = f", and {left_out:,} of them found no place" if left_out else ""
    return uris, f"{len(order):,} pictures are too many to show as they are: they are {SMALL} pixels wide{others}"


def _fitting(
    order: Sequence[tuple[Study, pathlib.Path]], room: int, small: bool
) -> tuple[dict[pathlib.Path, str], int]:
    """(those from the front that fit, how many don't)."""
    uris: dict[pathlib.Path, str] = {}
    for at, (study, path) in enumerate(order):
        uri = study.attempt(lambda path=path: data_uri(path, small), "")
        room -= len(uri)
        if room < 0:
            return uris, len(order) - at
        if uri:
            uris[path] = uri
    return uris, 0


def data_uri(path: pathlib.Path, small: bool = False) -> str:
    """A PNG as text: with the same pixels, or small and nearly so. Raises ReportError for what is no picture."""
    file = io.BytesIO()
    try:
        with Image.open(path, formats=["PNG"]) as picture:
            if picture.width * picture.height > _LARGEST:
                raise ValueError(f"it has {picture.width} x {picture.height} pixels")
            flat = Image.new("RGB", picture.size, "white")
            rgba = picture.convert("RGBA")
            flat.paste(rgba, mask=rgba.getchannel("A"))
        if small:
            flat.thumbnail((SMALL, 4 * SMALL), Image.Resampling.LANCZOS)
        flat.save(file, format="WEBP", **({"quality": 75} if small else {"lossless": True, "method": 3}))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:  # as Pillow says "broken"
        raise ReportError(
            f"{path}: this is no PNG that can be read ({error})\nmake the study's pictures again"
        ) from None
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
