// torch_anyaccel._C

#include "backward.h"
#include "device.h"
#include "generator.h"
#include "graph.h"
#include "interpreter.h"
#include "memory.h"
#include "random.h"
#include "runtime.h"
#include "stacks.h"

#include <cxxabi.h>
#include <pthread.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <atomic>

namespace py = pybind11;

namespace torch_anyaccel {

namespace {

// Calls a function of Python's, with the GIL. While it ran the interpreter may have gone: then Python ends the thread when it asks for
// the GIL again, through all that it was called by. It stays here instead, until the process has ended.
PyObject* call(PyObject* function) {
  try {
    return PyObject_CallNoArgs(function);
  } catch (const abi::__forced_unwind&) {
    for (;;) {
      pause();
    }
  }
}

// A function of Python, in the order of a stream.
void host_function(c10::DeviceIndex device, c10::StreamId id, py::function function) {
  // Held by a pointer that is let go with the GIL.
  std::shared_ptr<PyObject> held(function.release().ptr(), [](PyObject* last) {
    if (const WithInterpreter python; python) {
      Py_DECREF(last);
    }
  });
  const py::gil_scoped_release no_gil;
  call_in_order(c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, device), id), [held = std::move(held)] {
    const WithInterpreter python;
    if (!python) {
      return;
    }
    auto* result = call(held.get());
    if (result == nullptr) {
      throw std::runtime_error(py::detail::error_string());
    }
    Py_DECREF(result);
  });
}

// Whether the runtime was started in a process that this one was forked from.
std::atomic<bool> started_before_fork{false};

void note_fork() {
  if (anyaccel_is_started()) {
    started_before_fork = true;
  }
}

// Whether what was started before a fork keeps this process from starting it.
bool is_in_bad_fork() {
  return !anyaccel_is_started() && started_before_fork && anyaccel_init() == ANYACCEL_ERROR_FORKED;
}

void bind(py::module& m) {
  pthread_atfork(&note_fork, nullptr, &reset_interpreter);
  m.def("register_device", [] {
    register_device();
    register_allocators();
    register_metadata();
  });
  m.def("register_graph", &register_graph);
  m.def("device_count", &device_count);
  m.def("init", [] {
    const py::gil_scoped_release no_gil;
    check(anyaccel_init());
  });
  m.def("is_started", &anyaccel_is_started);
  m.def("is_in_bad_fork", &is_in_bad_fork);
  m.def("exchange_device", [](int32_t device) {
    int32_t before = 0;
    check(anyaccel_exchange_device(device, &before));
    return before;
  });
  m.def("device_name", [](int32_t device) {
    anyaccel_device_info info{};
    info.struct_size = sizeof(info);
    check(anyaccel_get_device_info(device, &info));
    return std::string(info.name);
  });
  m.def("default_generator", [](c10::DeviceIndex device) { return default_generator(device); });
  m.def("host_function", &host_function);
  m.def("set_random_layout", &set_random_layout);
  m.def("manual_seed", [](uint64_t seed) {
    check(anyaccel_generator_set(ANYACCEL_DEFAULT_GENERATOR(current_device()), seed, 0));
  });
  m.def("manual_seed_all", [](uint64_t seed) { check(anyaccel_manual_seed_all(seed)); });
  m.def("set_memory_budget", [](int32_t device, std::optional<uint64_t> bytes) {
    check(anyaccel_set_memory_budget(device, bytes.value_or(UINT64_MAX)));
  });
  m.def(
      "record_memory_history",
      [](uint32_t enabled, uint32_t context, bool stacks, bool with_cpp, uint64_t max_entries, bool clear, uint32_t skip, bool pinned) {
        anyaccel_history_options options{};
        options.struct_size = sizeof(options);
        options.enabled = enabled;
        options.context = context;
        options.stacks = stacks ? ANYACCEL_STACKS_SOURCE : ANYACCEL_STACKS_NONE;
        options.source = stacks ? &stack_source(with_cpp) : nullptr;
        options.max_entries = max_entries;
        options.clear = clear;
        options.skip = skip;
        options.pinned = pinned;
        check(anyaccel_record_memory_history(&options));
      });
  m.def("dump_memory_snapshot", [](const std::string& path) {
    // Names are asked for with the GIL, by the source of the stacks.
    const WithoutGil no_gil;
    check(anyaccel_dump_memory_snapshot(path.c_str()));
  });
  m.def("settle_backward", &settle_backward);
  m.def("close_interpreter", [] {
    if (!close_interpreter()) {
      throw py::error_already_set();
    }
  });
}

} // namespace

} // namespace torch_anyaccel

PYBIND11_MODULE(_C, m) {
  torch_anyaccel::bind(m);
}
