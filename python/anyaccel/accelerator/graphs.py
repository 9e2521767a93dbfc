"""Graphs: work captured once and replayed as one operation."""

from __future__ import annotations

from .. import _anyaccel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Literal

    from .._anyaccel import Stream

    CaptureErrorMode = Literal["default", "global", "thread_local", "relaxed"]

__all__ = ["Graph"]


class Graph:
    """Work that is captured once and then replayed, as often as wanted, as one operation of a stream.

    Captures the current stream of the current device: what is enqueued there between :meth:`capture_begin` and
    :meth:`capture_end`, or in a ``with`` block, is recorded instead of run. ``keep_graph=True`` makes it executable when
    asked or first replayed instead of at the end of the capture. ``pool`` is that of another graph (:meth:`pool`) or a
    ``MemPool``'s id. ``capture_error_mode`` is what a capture forbids to other threads. Both may be changed between
    captures.

    >>> import anyaccel
    >>> x = anyaccel.zeros(4, device=anyaccel.accelerator.current_accelerator())
    >>> with anyaccel.Stream():
    ...     g = anyaccel.accelerator.Graph()
    ...     with g:
    ...         _ = x.fill_(1.0)
    ...     before = x.cpu().tolist()
    ...     g.replay()
    ...     before, x.cpu().tolist()
    ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])
    """

    graph_pool: tuple[int, int] | None
    capture_error_mode: CaptureErrorMode

    def __init__(
        self,
        keep_graph: bool = False,
        *,
        pool: tuple[int, int] | None = None,
        capture_error_mode: CaptureErrorMode = "default",
    ) -> None:
        _anyaccel._check_capture_error_mode(capture_error_mode)
        self._graph = _anyaccel._Graph(keep_graph)
        self.graph_pool = pool
        self.capture_error_mode = capture_error_mode
        self._origin: Stream | None = None

    def capture_begin(self) -> None:
        """Begins to capture the current stream of the current device."""
        self._graph.capture_begin(self.graph_pool, self.capture_error_mode)

    def capture_end(self) -> None:
        """Ends the capture, on the stream where it began. Unless made with ``keep_graph``, the graph is executable then."""
        self._graph.capture_end()

    def instantiate(self) -> None:
        """Makes what was captured executable."""
        self._graph.instantiate()

    def replay(self) -> None:
        """Runs the graph as one operation of the current stream, and returns at once."""
        self._graph.replay()

    def reset(self) -> None:
        """Forgets what was captured, so that the graph can capture again. Harmless if there is nothing."""
        self._graph.reset()

    def pool(self) -> tuple[int, int]:
        """The pool of the last capture, for another graph's ``pool``; ``(0, 0)`` before the first."""
        return self._graph.pool()

    def enable_debug_mode(self) -> None:
        """Keeps what :meth:`debug_dump` needs."""
        self._graph.enable_debug_mode()

    def debug_dump(self, path: str | os.PathLike[str]) -> None:
        """Writes what was captured as a Graphviz document."""
        self._graph.debug_dump(path)

    def __enter__(self) -> None:
        _anyaccel.synchronize()
        _anyaccel.empty_cache()
        _anyaccel.empty_host_cache()
        origin = _anyaccel.current_stream()
        self.capture_begin()
        self._origin = origin

    def __exit__(self, kind: object, *exception: object) -> None:
        origin, self._origin = self._origin, None
        if kind is not None:
            # The body's own error is the one that counts.
            self._graph.reset()
            return
        if origin is None:
            self.capture_end()
            return
        try:
            with origin:
                self.capture_end()
        except BaseException:
            self._graph.reset()
            raise

    def __reduce__(self) -> str:
        raise TypeError(f"cannot pickle or copy '{type(self).__name__}' object")

    def __repr__(self) -> str:
        state = "capturing" if self._graph.is_capturing() else f"pool={self.pool()}"
        return f"<anyaccel.accelerator.Graph {state}>"
