"""What a typed program writes; checked by `mypy --strict`, not run."""

from typing import assert_type
import anyaccel
from anyaccel import accelerator


def program(device: anyaccel.device) -> float:
    assert_type(accelerator.device_count(), int)
    assert_type(accelerator.current_accelerator(), anyaccel.device | None)
    assert_type(accelerator.current_stream(device), anyaccel.Stream)
    assert_type(accelerator.get_memory_info("host:0"), tuple[int, int])
    assert_type(accelerator.random.get_rng_state(), anyaccel.Tensor)
    with anyaccel.Stream(device, priority=-1) as stream, accelerator.device_index(0):
        assert_type(stream, anyaccel.Stream)
        start, end = anyaccel.Event(enable_timing=True), anyaccel.Event(enable_timing=True)
        start.record()
        x = anyaccel.empty(2, 3, dtype=anyaccel.float32, device=device).normal_()
        assert_type(x.to("cpu"), anyaccel.Tensor)
        end.record(stream)
    graph = accelerator.Graph(keep_graph=True, capture_error_mode="relaxed")
    with graph:
        x.fill_(1.0)
    graph.replay()
    accelerator.random.set_rng_state(bytes(16))
    accelerator.set_stream(anyaccel.Stream(stream.stream_id, stream.device_index, stream.device_type))
    return start.elapsed_time(end)
