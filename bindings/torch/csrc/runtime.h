// The C library as the rest of this extension sees it: failures as exceptions, streams as PyTorch's.
#pragma once

#include <anyaccel/anyaccel.h>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <string>

namespace torch_anyaccel {

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;

// Throws what the last failed call of this thread said: memory that ran out as torch.OutOfMemoryError, what a device can't
// do as NotImplementedError, the rest as RuntimeError.
[[noreturn]] void raise(anyaccel_result result);

inline void check(anyaccel_result result) {
  if (C10_UNLIKELY(result != ANYACCEL_OK)) {
    raise(result);
  }
}

anyaccel_stream to_native(c10::Stream stream);
c10::Stream from_native(anyaccel_stream stream);

// None if there is no runtime.
c10::DeviceIndex device_count() noexcept;

// This thread's current device, and its current stream of a device.
c10::DeviceIndex current_device();
c10::Stream current_stream(c10::DeviceIndex device);

// Where memory is: a device, or the host.
inline int32_t native_place(c10::Device device) {
  return device.type() == kDevice ? device.index() : ANYACCEL_HOST;
}

// Enqueues a copy. To memory of the host that isn't pinned it has ended when this returns.
void copy_async(void* to, c10::Device to_device, const void* from, c10::Device from_device, size_t bytes, c10::Stream stream);

// Waits, without the GIL being needed by what is waited for.
void wait(c10::Stream stream);

bool is_capturing(c10::Stream stream);

// Has what is enqueued next on one stream wait for what is enqueued by now on another.
void order_after(c10::Stream later, c10::Stream earlier);

// Enqueues a function. While the stream is captured it is called at each replay, and dropped with the graph. What it throws
// is thrown again, once, by the next wait for the device. It must not own what Python may own too.
void call_in_order(c10::Stream stream, std::function<void()> function);

// Throws what a function that was called in order left, if one did.
void throw_deferred();

// Lets go of the GIL, if this thread has it, while it lives.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* state_;
};

} // namespace torch_anyaccel
