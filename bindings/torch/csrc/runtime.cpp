#include "runtime.h"

#include <c10/util/Exception.h>
#include <torch/csrc/python_headers.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

namespace torch_anyaccel {

namespace {

std::string last_error() {
  std::string text(anyaccel_last_error(nullptr, 0), '\0');
  anyaccel_last_error(text.data(), text.size() + 1);
  return text;
}

// What functions called in stream order threw; the first counts until it is told.
struct Deferred {
  std::atomic<bool> any{false};
  std::mutex mutex;
  std::string text;
};

// Never destroyed: functions may end after the end of main.
Deferred& deferred() {
  static auto* const instance = new Deferred;
  return *instance;
}

void defer(const char* text) {
  auto& left = deferred();
  const std::lock_guard lock(left.mutex);
  if (!left.any) {
    left.text = text;
    left.any = true;
  }
}

using Function = std::function<void()>;

void call(void* data) {
  try {
    (*static_cast<Function*>(data))();
  } catch (const c10::Error& error) {
    defer(error.what_without_backtrace());
  } catch (const std::exception& error) {
    defer(error.what());
  }
}

void destroy(void* data) {
  delete static_cast<Function*>(data);
}

} // namespace

void raise(anyaccel_result result) {
  auto text = last_error();
  switch (result) {
    case ANYACCEL_ERROR_OUT_OF_MEMORY:
    case ANYACCEL_ERROR_OUT_OF_HOST_MEMORY:
      C10_THROW_ERROR(OutOfMemoryError, std::move(text));
    case ANYACCEL_ERROR_UNSUPPORTED:
      C10_THROW_ERROR(NotImplementedError, std::move(text));
    case ANYACCEL_ERROR_STALE:
      // What is left of the parent of a fork. Where nothing can be made anew either, that is what has to be said.
      if (anyaccel_init() == ANYACCEL_ERROR_FORKED) {
        text = last_error();
      }
      [[fallthrough]];
    default:
      C10_THROW_ERROR(Error, std::move(text));
  }
}

c10::DeviceIndex device_count() noexcept {
  int32_t count = 0;
  return anyaccel_device_count(&count) == ANYACCEL_OK ? static_cast<c10::DeviceIndex>(count) : 0;
}

c10::DeviceIndex current_device() {
  int32_t device = 0;
  check(anyaccel_current_device(&device));
  return static_cast<c10::DeviceIndex>(device);
}

anyaccel_stream to_native(c10::Stream stream) {
  TORCH_CHECK(
      stream.device_type() == kDevice, "A stream of the device ", stream.device(), " is none of ",
      c10::DeviceTypeName(kDevice, true), ".");
  return ANYACCEL_STREAM(stream.device_index(), stream.id());
}

c10::Stream from_native(anyaccel_stream stream) {
  const c10::Device device(kDevice, static_cast<c10::DeviceIndex>(ANYACCEL_STREAM_DEVICE(stream)));
  return c10::Stream(c10::Stream::UNSAFE, device, static_cast<c10::StreamId>(ANYACCEL_STREAM_ID(stream)));
}

c10::Stream current_stream(c10::DeviceIndex device) {
  anyaccel_stream stream = 0;
  check(anyaccel_stream_current(device, &stream));
  return from_native(stream);
}

void copy_async(void* to, c10::Device to_device, const void* from, c10::Device from_device, size_t bytes, c10::Stream stream) {
  const auto into = native_place(to_device);
  std::optional<WithoutGil> no_gil;
  if (into == ANYACCEL_HOST) {
    no_gil.emplace(); // it may wait
  }
  check(anyaccel_copy(to, into, from, native_place(from_device), bytes, to_native(stream), ANYACCEL_COPY_ASYNC));
}

void wait(c10::Stream stream) {
  const auto native = to_native(stream);
  bool ended = false;
  check(anyaccel_stream_query(native, &ended));
  if (!ended) {
    const WithoutGil no_gil;
    check(anyaccel_stream_synchronize(native));
  }
  throw_deferred();
}

bool is_capturing(c10::Stream stream) {
  bool capturing = false;
  check(anyaccel_stream_is_capturing(to_native(stream), &capturing));
  return capturing;
}

void order_after(c10::Stream later, c10::Stream earlier) {
  if (later != earlier) {
    check(anyaccel_stream_wait_stream(to_native(later), to_native(earlier)));
  }
}

void call_in_order(c10::Stream stream, std::function<void()> function) {
  anyaccel_host_function native{};
  native.struct_size = sizeof(native);
  native.call = &call;
  native.destroy = &destroy;
  native.data = new Function(std::move(function));
  check(anyaccel_stream_host_function(to_native(stream), &native));
}

void throw_deferred() {
  auto& left = deferred();
  if (C10_UNLIKELY(left.any.load(std::memory_order_relaxed))) {
    std::string text;
    {
      const std::lock_guard lock(left.mutex);
      if (!left.any) {
        return; // another thread has told it
      }
      text = std::exchange(left.text, {});
      left.any = false;
    }
    C10_THROW_ERROR(Error, std::move(text));
  }
}

WithoutGil::WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil() {
  if (state_ != nullptr) {
    PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
  }
}

} // namespace torch_anyaccel
