"""The bare driver, by ctypes: what everything else is measured against."""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p

MULTIPROCESSORS, THREADS = 16, 39
DISABLE_TIMING = 2
NON_BLOCKING = 1
THREAD_LOCAL = 1

SIGNATURES = {
    "cuInit": [c_uint],
    "cuDriverGetVersion": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxSetCurrent": [c_void_p],
    "cuCtxPushCurrent_v2": [c_void_p],
    "cuStreamCreateWithPriority": [POINTER(c_void_p), c_uint, c_int],
    "cuStreamSynchronize": [c_void_p],
    "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
    "cuMemAlloc_v2": [POINTER(c_uint64), c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemHostAlloc": [POINTER(c_void_p), c_size_t, c_uint],
    "cuMemsetD8Async": [c_uint64, ctypes.c_ubyte, c_size_t, c_void_p],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
    "cuMemcpyDtoDAsync_v2": [c_uint64, c_uint64, c_size_t, c_void_p],
    "cuStreamBeginCapture_v2": [c_void_p, c_int],
    "cuStreamEndCapture": [c_void_p, POINTER(c_void_p)],
    "cuGraphInstantiateWithFlags": [POINTER(c_void_p), c_void_p, c_ulonglong],
    "cuGraphLaunch": [c_void_p, c_void_p],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
}


class Driver:
    """The library that the runtime takes too. Calls that fail raise."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ.get("ANYACCEL_CUDA_LIBRARY") or "libcuda.so.1")
        self.calls = {}
        for name, arguments in SIGNATURES.items():
            function = getattr(self.library, name, None)
            if function is not None:
                function.argtypes, function.restype = arguments, c_int
                self.calls[name] = function
        self("cuInit", 0)

    def __call__(self, name: str, *arguments: object) -> None:
        if name not in self.calls:
            raise RuntimeError(f"this driver has no {name}")
        code = self.calls[name](*arguments)
        if code != 0:
            text = c_char_p()
            known = "cuGetErrorName" in self.calls and self.calls["cuGetErrorName"](code, byref(text)) == 0
            raise RuntimeError(f"{name}: {code} {text.value.decode() if known and text.value else ''}")

    def attribute(self, number: int) -> int:
        value, device = c_int(), c_int()
        self("cuDeviceGet", byref(device), 0)
        self("cuDeviceGetAttribute", byref(value), number, device)
        return value.value

    def size(self) -> tuple[int, int]:
        """Multiprocessors, and threads of one: 2048 where the driver does not tell."""
        try:
            threads = self.attribute(THREADS)
        except RuntimeError:
            threads = 2048
        return self.attribute(MULTIPROCESSORS), threads

    def enter(self) -> None:
        """Makes device 0's primary context current on this thread, which is also the runtime's and PyTorch's."""
        context, device = c_void_p(), c_int()
        self("cuDeviceGet", byref(device), 0)
        self("cuDevicePrimaryCtxRetain", byref(context), device)
        self("cuCtxSetCurrent" if "cuCtxSetCurrent" in self.calls else "cuCtxPushCurrent_v2", context)

    def stream(self) -> c_void_p:
        stream = c_void_p()
        self("cuStreamCreateWithPriority", byref(stream), NON_BLOCKING, 0)
        return stream

    def event(self) -> c_void_p:
        event = c_void_p()
        self("cuEventCreate", byref(event), DISABLE_TIMING)
        return event

    def memory(self, size: int) -> int:
        address = c_uint64()
        self("cuMemAlloc_v2", byref(address), size)
        return address.value

    def pinned(self, size: int) -> c_void_p:
        pointer = c_void_p()
        self("cuMemHostAlloc", byref(pointer), size, 0)
        return pointer

    def synchronize(self, stream: c_void_p) -> None:
        if "cuStreamSynchronize" in self.calls:
            self("cuStreamSynchronize", stream)
        else:
            event = self.event()
            self("cuEventRecord", event, stream)
            self("cuEventSynchronize", event)
