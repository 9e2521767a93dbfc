// `gate` counts, in steps of 2, the threads that have the GIL or wait for it; its lowest bit says that it is closed. A thread
// enters before it asks for the GIL. Closing waits until nobody is inside, for a while, so nobody asks an interpreter for its GIL that is
// being taken down: that ends threads in the middle of their functions.

#include "interpreter.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace torch_anyaccel {

namespace {

constexpr uint64_t kClosed = 1;
constexpr uint64_t kOne = 2;
// How long closing waits for a function that may never end: one that waits for a gate which its program, having failed, won't open.
constexpr std::chrono::seconds kPatience(5);
std::atomic<uint64_t> gate{0};

} // namespace

WithInterpreter::WithInterpreter() : held_((gate.fetch_add(kOne) & kClosed) == 0 && Py_IsInitialized()) {
  if (held_) {
    state_ = PyGILState_Ensure();
  }
}

WithInterpreter::~WithInterpreter() {
  if (held_) {
    PyGILState_Release(state_);
  }
  // Not below 0: a child that was forked inside starts at 0.
  auto now = gate.load();
  while (now >= kOne && !gate.compare_exchange_weak(now, now - kOne)) {
  }
}

bool close_interpreter() {
  gate.fetch_or(kClosed);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (gate.load() >= kOne && std::chrono::steady_clock::now() < end) {
    Py_BEGIN_ALLOW_THREADS;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Py_END_ALLOW_THREADS;
    if (PyErr_CheckSignals() != 0) {
      return false;
    }
  }
  return true;
}

void reset_interpreter() {
  gate.store(0);
}

} // namespace torch_anyaccel
