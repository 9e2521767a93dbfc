// The device as PyTorch's generic code knows it: guard, streams, events, hooks.

#include "device.h"

#include "generator.h"
#include "memory.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace torch_anyaccel {

namespace {

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  int32_t before = 0;
  const auto result = anyaccel_exchange_device(index, &before);
  if (C10_UNLIKELY(result != ANYACCEL_OK)) {
    const auto count = device_count();
    // The words that PyTorch's tests of accelerators look for.
    TORCH_CHECK(
        count == 0 || index < count, "The device index is out of range: it must be in [0, ", static_cast<int>(count),
        "), but is ", static_cast<int>(index), ".");
    raise(result);
  }
  return static_cast<c10::DeviceIndex>(before);
}

// Types that PyTorch has and the runtime has not: the CPU converts them as it does all others.
template <typename Types>
void add_newer(Types& types) {
  if constexpr (requires { types.has_BComplex32; }) {
    types.has_BComplex32 = 1;
  }
}

anyaccel_event event_of(void* event) {
  return reinterpret_cast<anyaccel_event>(event);
}

// Priority of streams "from the pool" that are to be urgent.
constexpr int kUrgent = -1;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kDevice;
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    TORCH_CHECK(device.type() == kDevice, "Expected a device of ", c10::DeviceTypeName(kDevice, true), ", not ", device, ".");
    return {kDevice, device.has_index() ? exchange_device(device.index()) : current_device()};
  }

  c10::Device getDevice() const override {
    return {kDevice, current_device()};
  }

  void setDevice(c10::Device device) const override {
    exchangeDevice(device);
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    anyaccel_set_device(device.index());
  }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.index());
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    anyaccel_stream stream = 0;
    check(anyaccel_stream_default(device.index(), &stream));
    return from_native(stream);
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool is_urgent) const override {
    return getNewStream(device, is_urgent ? kUrgent : 0);
  }

  c10::Stream getNewStream(c10::Device device, int priority) const override {
    anyaccel_stream stream = 0;
    check(anyaccel_stream_from_pool(device.index(), priority, &stream));
    return from_native(stream);
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    anyaccel_stream before = 0;
    check(anyaccel_stream_exchange(to_native(stream), &before));
    return from_native(before);
  }

  void* getStreamNativeHandle(const c10::Stream stream) const {
    uint64_t native = 0;
    check(anyaccel_stream_native(to_native(stream), &native));
    return reinterpret_cast<void*>(native);
  }

  bool queryStream(const c10::Stream& stream) const override {
    bool ended = false;
    check(anyaccel_stream_query(to_native(stream), &ended));
    return ended;
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    wait(stream);
  }

  void synchronizeDevice(const c10::DeviceIndex device) const override {
    {
      const WithoutGil no_gil;
      check(anyaccel_synchronize_device(device));
    }
    throw_deferred();
  }

  bool isStreamCapturing(const c10::Stream& stream) const {
    return is_capturing(stream);
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) {
      anyaccel_event_destroy(event_of(event));
    }
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device, const c10::EventFlag flag)
      const override {
    TORCH_CHECK(
        device == -1 || device == stream.device_index(), "Event device index ", static_cast<int>(device),
        " does not match recording stream's device index ", static_cast<int>(stream.device_index()), ".");
    if (*event == nullptr) {
      anyaccel_event made = 0;
      const uint32_t flags = flag == c10::EventFlag::BACKEND_DEFAULT ? ANYACCEL_EVENT_TIMING : 0;
      check(anyaccel_event_create(stream.device_index(), flags, &made));
      *event = reinterpret_cast<void*>(made);
    }
    check(anyaccel_event_record(event_of(*event), to_native(stream)));
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      check(anyaccel_event_wait(event_of(event), to_native(stream)));
    }
  }

  bool queryEvent(void* event) const override {
    bool ended = true;
    if (event != nullptr) {
      check(anyaccel_event_query(event_of(event), &ended));
    }
    return ended;
  }

  void synchronizeEvent(void* event) const override {
    if (event != nullptr && !queryEvent(event)) {
      const WithoutGil no_gil;
      check(anyaccel_event_synchronize(event_of(event)));
    }
    throw_deferred();
  }

  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    double milliseconds = 0;
    check(anyaccel_event_elapsed(event_of(start), event_of(end), &milliseconds));
    return milliseconds;
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    record_use(memory, stream);
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count();
  }

  c10::DeviceCapability getDeviceCapability(c10::Device device) const {
    uint64_t types = 0;
    check(anyaccel_device_capability(device.index(), &types));
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = types;
    add_newer(capability.capability_data.supported_scalar_types);
    return capability;
  }
};

// Some of these are not in the interface of every PyTorch that this is built for, so none says `override` that may not be.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const {
    return true;
  }

  bool isAvailable() const {
    return device_count() > 0;
  }

  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return anyaccel_is_started();
  }

  void init() const override {
    check(anyaccel_init());
  }

  c10::DeviceIndex deviceCount() const {
    return device_count();
  }

  void setCurrentDevice(c10::DeviceIndex device) const {
    exchange_device(device);
  }

  c10::DeviceIndex getCurrentDevice() const {
    return current_device();
  }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const {
    return exchange_device(device);
  }

  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const {
    return device < 0 ? current_device() : exchange_device(device);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }

  at::Generator getNewGenerator(c10::DeviceIndex device) const {
    return new_generator(device);
  }

  c10::Device getDeviceFromPtr(void* address) const override {
    const auto info = pointer_info(address);
    TORCH_CHECK(info.kind == ANYACCEL_POINTER_DEVICE, address, " is no memory of a device.");
    return {kDevice, static_cast<c10::DeviceIndex>(info.device)};
  }

  bool isPinnedPtr(const void* address) const {
    return anyaccel_is_started() && pointer_info(address).kind == ANYACCEL_POINTER_PINNED;
  }

  c10::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(kDevice);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }

 private:
  static anyaccel_pointer_info pointer_info(const void* address) {
    anyaccel_pointer_info info{};
    info.struct_size = sizeof(info);
    check(anyaccel_get_pointer_info(address, &info));
    return info;
  }
};

} // namespace

void register_device() {
  static Guard guard;
  static c10::impl::DeviceGuardImplRegistrar registrar(kDevice, &guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
}

} // namespace torch_anyaccel
