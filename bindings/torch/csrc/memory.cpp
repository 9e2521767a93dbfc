#include "memory.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>

namespace torch_anyaccel {

namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

Stat stat_of(const anyaccel_stat& native) {
  Stat stat;
  stat.current = native.current;
  stat.peak = native.peak;
  stat.allocated = native.allocated;
  stat.freed = native.freed;
  return stat;
}

StatArray stats_of(const anyaccel_pool_stat& native) {
  return {stat_of(native.all), stat_of(native.small), stat_of(native.large)};
}

c10::CachingAllocator::DurationStat time_of(const anyaccel_time_stat& native) {
  c10::CachingAllocator::DurationStat stat;
  stat.total = native.total;
  stat.max = native.max;
  stat.min = native.min;
  stat.count = native.count;
  return stat;
}

// Frees what this process may free: after a fork and at exit, what is left goes with the process.
void free_device(void* memory) {
  anyaccel_free(memory);
}

void free_pinned(void* memory) {
  anyaccel_host_free(memory);
}

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    const auto device = current_device();
    if (bytes != 0) {
      check(anyaccel_alloc(device, bytes, ANYACCEL_CURRENT_STREAM, &memory));
    }
    return {memory, memory, &free_device, c10::Device(kDevice, device)};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &free_device;
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    const c10::Device device(kDevice, current_device());
    copy_async(to, device, from, device, bytes, current_stream(device.index()));
  }

  bool initialized() override {
    return anyaccel_is_started();
  }

  void emptyCache(c10::MempoolId_t pool) override {
    const WithoutGil no_gil;
    check(anyaccel_pool_empty_cache({pool.first, pool.second}));
  }

  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override {
    // Memory of other makers is theirs to keep.
    if (memory.get() != nullptr && memory.get_deleter() == &free_device) {
      check(anyaccel_record_stream(memory.get(), to_native(stream)));
    }
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    anyaccel_memory_stats native{};
    native.struct_size = sizeof(native);
    check(anyaccel_get_memory_stats(device, &native));
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocation = stats_of(native.allocation);
    stats.segment = stats_of(native.segment);
    stats.active = stats_of(native.active);
    stats.inactive_split = stats_of(native.inactive_split);
    stats.allocated_bytes = stats_of(native.allocated_bytes);
    stats.reserved_bytes = stats_of(native.reserved_bytes);
    stats.active_bytes = stats_of(native.active_bytes);
    stats.inactive_split_bytes = stats_of(native.inactive_split_bytes);
    stats.requested_bytes = stats_of(native.requested_bytes);
    stats.oversize_allocations = stat_of(native.oversize_allocations);
    stats.oversize_segments = stat_of(native.oversize_segments);
    stats.num_alloc_retries = native.num_alloc_retries;
    stats.num_ooms = native.num_ooms;
    stats.num_sync_all_streams = native.num_sync_all_streams;
    stats.num_device_alloc = native.num_device_alloc;
    stats.num_device_free = native.num_device_free;
    stats.max_split_size = native.max_split_size;
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    check(anyaccel_reset_accumulated_memory_stats(device));
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    check(anyaccel_reset_peak_memory_stats(device));
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    uint64_t free = 0;
    uint64_t total = 0;
    check(anyaccel_memory_info(device, &free, &total));
    return {free, total};
  }
};

class PinnedMemory final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (bytes != 0) {
      check(anyaccel_host_alloc(ANYACCEL_CURRENT_DEVICE, bytes, &memory));
    }
    return {memory, memory, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &free_pinned;
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  bool record_event(void* memory, void*, c10::Stream stream) override {
    return memory != nullptr && anyaccel_host_record_stream(memory, to_native(stream)) == ANYACCEL_OK;
  }

  void empty_cache() override {
    const WithoutGil no_gil;
    check(anyaccel_empty_host_cache());
  }

  at::HostStats get_stats() override {
    anyaccel_host_memory_stats native{};
    native.struct_size = sizeof(native);
    check(anyaccel_get_host_memory_stats(ANYACCEL_CURRENT_DEVICE, &native));
    at::HostStats stats;
    stats.allocations = stat_of(native.allocations);
    stats.allocated_bytes = stat_of(native.allocated_bytes);
    stats.active_requests = stat_of(native.active_requests);
    stats.active_bytes = stat_of(native.active_bytes);
    stats.host_alloc_time = time_of(native.host_alloc_time);
    stats.host_free_time = time_of(native.host_free_time);
    stats.num_host_alloc = native.num_host_alloc;
    stats.num_host_free = native.num_host_free;
    return stats;
  }

  void reset_accumulated_stats() override {
    check(anyaccel_reset_accumulated_host_memory_stats(ANYACCEL_CURRENT_DEVICE));
  }

  void reset_peak_stats() override {
    check(anyaccel_reset_peak_host_memory_stats(ANYACCEL_CURRENT_DEVICE));
  }
};

} // namespace

void resize_storage(const c10::Storage& storage, size_t bytes) {
  const c10::DeviceGuard guard(storage.device());
  auto* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "This storage can't be resized.");
  auto memory = c10::GetAllocator(kDevice)->allocate(bytes);
  const auto kept = std::min(bytes, impl->nbytes());
  if (kept != 0) {
    copy_async(memory.get(), storage.device(), impl->data(), storage.device(), kept, current_stream(storage.device().index()));
  }
  impl->set_data_ptr_noswap(std::move(memory));
  impl->set_nbytes(bytes);
}

void record_use(const c10::DataPtr& memory, c10::Stream stream) {
  c10::getDeviceAllocator(kDevice)->recordStream(memory, stream);
}

void register_allocators() {
  // Never destroyed: memory may be given back after the end of main.
  static auto* const device = new DeviceMemory;
  static auto* const pinned = new PinnedMemory;
  c10::SetAllocator(kDevice, device);
  at::setHostAllocator(kDevice, pinned);
}

} // namespace torch_anyaccel
