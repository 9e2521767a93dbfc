"""Checks a memory snapshot against the layout of PyTorch 2.14's: keys, their order, types, and what must hold between them.

``python snapshot_layout.py FILE...`` checks files. They are read by an unpickler that builds plain data only: a file that
names a class or a function is refused.
"""

import pickle
import pickletools
import sys

TOP = ["segments", "device_traces", "allocator_settings", "external_annotations", "host_segments", "host_traces"]
SEGMENT = {
    "device": int,
    "address": int,
    "total_size": int,
    "allocated_size": int,
    "active_size": int,
    "requested_size": int,
    "stream": int,
    "segment_type": str,
    "segment_pool_id": tuple,
    "is_expandable": bool,
    "frames": list,
    "blocks": list,
}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
EVENT = {
    "action": str,
    "addr": int,
    "size": int,
    "stream": int,
    "time_us": int,
    "compile_context": str,
    "user_metadata": str,
    "pool_id": tuple,
    "frames": list,
}
FRAME = {"name": str, "filename": str, "line": int}
ANNOTATION = {"stage": str, "name": str, "device": int, "time_us": int}
SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": str,
    "max_split_size": int,
    "garbage_collection_threshold": float,
    "expandable_segments": bool,
    "pinned_num_register_threads": int,
    "release_lock_on_cudamalloc": bool,
    "pinned_use_cuda_host_register": bool,
    "graph_capture_record_stream_reuse": bool,
    "max_round_threshold": int,
    "max_cached_size": int,
    "roundup_power2_divisions": dict,
}
ACTIONS = """alloc free_requested free_completed segment_alloc segment_free segment_map segment_unmap oom snapshot
annotate""".split()
OPCODES = """PROTO FRAME MEMOIZE MARK EMPTY_DICT EMPTY_LIST SHORT_BINUNICODE BINUNICODE BININT BININT1 BININT2 LONG1 TUPLE2
NEWTRUE NEWFALSE BINFLOAT BINGET LONG_BINGET SETITEMS APPENDS APPEND STOP""".split()


class Plain(pickle.Unpickler):
    """Builds nothing but what the language itself has."""

    def find_class(self, module: str, name: str) -> None:
        raise pickle.UnpicklingError(f"a snapshot names no {module}.{name}")


def shaped(value: object, shape: dict[str, type], optional: tuple[str, ...] = ()) -> None:
    assert type(value) is dict, value
    keys = [key for key in shape if key in value or key not in optional]
    assert list(value) == keys, f"{list(value)}, expected {keys}"
    for key, kind in value.items():
        assert type(kind) is shape[key], f"{key}: {kind!r} is no {shape[key].__name__}"


def framed(value: dict) -> None:
    for frame in value.get("frames", []):
        shaped(frame, FRAME)


def pool(value: tuple) -> None:
    assert len(value) == 2 and all(type(part) is int for part in value), value


def segments(found: list, host: bool) -> None:
    assert type(found) is list
    places = [(segment["device"], segment["address"]) for segment in found]
    assert places == sorted(places) or host, "segments are in address order"
    for segment in found:
        shaped(segment, SEGMENT)
        framed(segment)
        pool(segment["segment_pool_id"])
        assert segment["segment_type"] in ("small", "large") and (segment["device"] == -1) == host
        at = segment["address"]
        sums = {"active_allocated": 0, "active_pending_free": 0, "inactive": 0}
        requested = 0
        for block in segment["blocks"]:
            shaped(block, BLOCK)
            framed(block)
            assert block["address"] == at, "blocks fill their segment"
            at += block["size"]
            sums[block["state"]] += block["size"]
            if block["state"] != "inactive":
                requested += block["requested_size"]
        assert at - segment["address"] == segment["total_size"]
        assert sums["active_allocated"] == segment["allocated_size"]
        assert sums["active_allocated"] + sums["active_pending_free"] == segment["active_size"]
        assert requested == segment["requested_size"]


def events(found: list, context: str) -> None:
    assert type(found) is list
    for event in found:
        assert event["action"] in ACTIONS
        shape = EVENT
        if event["action"] == "oom":
            shape = {("device_free" if key == "addr" else key): kind for key, kind in EVENT.items()}
        shaped(event, shape, optional=("frames",))
        framed(event)
        pool(event["pool_id"])
        assert event["compile_context"] == context and event["size"] >= 0
        assert event["action"] != "snapshot" or ("frames" not in event and event["addr"] == 0)
    assert [event["time_us"] for event in found] == sorted(event["time_us"] for event in found)


def rebuilt(snapshot: dict, device: int) -> None:
    """The events of a complete recording say the same as the segments."""
    live: dict[int, list] = {}
    for event in snapshot["device_traces"][device]:
        if event["action"] == "alloc":
            assert event["addr"] not in live, event
            live[event["addr"]] = [event["size"], "active_allocated"]
        elif event["action"] == "free_requested":
            live[event["addr"]][1] = "active_pending_free"
        elif event["action"] == "free_completed":
            assert live.pop(event["addr"])[0] == event["size"]
    shown = {
        block["address"]: [block["requested_size"], block["state"]]
        for segment in snapshot["segments"]
        if segment["device"] == device
        for block in segment["blocks"]
        if block["state"] != "inactive"
    }
    assert live == shown, (live, shown)


def layout(snapshot: dict) -> None:
    """Everything that any snapshot of ours keeps to."""
    assert list(snapshot)[:6] == TOP and list(snapshot)[6:] in ([], ["anyaccel"]), list(snapshot)
    segments(snapshot["segments"], host=False)
    segments(snapshot["host_segments"], host=True)
    for trace in snapshot["device_traces"]:
        events(trace, "N/A")
    events(snapshot["host_traces"], "")
    shaped(snapshot["allocator_settings"], SETTINGS)
    divisions = snapshot["allocator_settings"]["roundup_power2_divisions"]
    assert list(divisions) == [str(1 << slot) for slot in range(16)], divisions
    for annotation in snapshot["external_annotations"]:
        shaped(annotation, ANNOTATION)
        assert annotation["stage"] in ("START", "END")


def load(path: str) -> dict:
    with open(path, "rb") as file:
        data = file.read()
    used = {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert used <= set(OPCODES), f"opcodes that PyTorch does not use: {used - set(OPCODES)}"
    assert data[:2] == b"\x80\x04", "protocol 4"
    with open(path, "rb") as file:
        return Plain(file).load()


if __name__ == "__main__":
    for path in sys.argv[1:]:
        snapshot = load(path)
        layout(snapshot)
        count = sum(len(trace) for trace in snapshot["device_traces"])
        print(f"{path}: {len(snapshot['segments'])} segments, {count} events, as PyTorch lays them out")
