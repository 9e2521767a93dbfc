#include "generator.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace torch_anyaccel {

namespace {

// Seed, then offset, little-endian.
constexpr size_t kStateBytes = 16;

class Philox final : public c10::GeneratorImpl {
 public:
  // Owns the native generator unless it is a device's default one.
  Philox(c10::DeviceIndex device, anyaccel_generator native, bool owned)
      : c10::GeneratorImpl(c10::Device(kDevice, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        native_(native),
        owned_(owned) {}

  ~Philox() override {
    if (owned_) {
      anyaccel_generator_destroy(native_);
    }
  }

  static c10::DeviceType device_type() {
    return kDevice;
  }

  void set_current_seed(uint64_t seed) override {
    check(anyaccel_generator_set(native_, seed, 0));
  }

  void set_offset(uint64_t offset) override {
    check(anyaccel_generator_set(native_, current_seed(), offset));
  }

  uint64_t get_offset() const override {
    return state().second;
  }

  uint64_t current_seed() const override {
    return state().first;
  }

  uint64_t seed() override {
    uint64_t drawn = 0;
    check(anyaccel_generator_seed(native_, &drawn));
    return drawn;
  }

  void set_state(const c10::TensorImpl& given) override {
    at::detail::check_rng_state(given);
    const auto bytes = given.numel();
    TORCH_CHECK(
        bytes == kStateBytes || bytes == kStateBytes / 2, "The state of a generator of this device has ", kStateBytes,
        " bytes, or ", kStateBytes / 2, " without offset; this one has ", bytes, ".");
    uint64_t parts[2] = {0, 0};
    std::memcpy(parts, given.data(), bytes);
    check(anyaccel_generator_set(native_, parts[0], parts[1]));
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto [seed, offset] = state();
    auto tensor = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, c10::ScalarType::Byte);
    const uint64_t parts[2] = {seed, offset};
    std::memcpy(tensor.mutable_data_ptr(), parts, kStateBytes);
    return tensor.getIntrusivePtr();
  }

  anyaccel_generator native() const {
    return native_;
  }

 private:
  std::pair<uint64_t, uint64_t> state() const {
    uint64_t seed = 0;
    uint64_t offset = 0;
    check(anyaccel_generator_get(native_, &seed, &offset));
    return {seed, offset};
  }

  Philox* clone_impl() const override {
    const auto [seed, offset] = state();
    anyaccel_generator native = 0;
    check(anyaccel_generator_create(seed, &native));
    auto copy = std::make_unique<Philox>(device().index(), native, true);
    check(anyaccel_generator_set(native, seed, offset));
    return copy.release();
  }

  const anyaccel_generator native_;
  const bool owned_;
};

} // namespace

const at::Generator& default_generator(c10::DeviceIndex device) {
  // Never destroyed, as the runtime is not.
  static const auto* const all = [] {
    int32_t count = 0;
    check(anyaccel_device_count(&count));
    auto* made = new std::vector<at::Generator>;
    for (const auto i : c10::irange(count)) {
      made->push_back(at::make_generator<Philox>(static_cast<c10::DeviceIndex>(i), ANYACCEL_DEFAULT_GENERATOR(i), false));
    }
    return made;
  }();
  const auto index = device == -1 ? current_device() : device;
  TORCH_CHECK(
      index >= 0 && static_cast<size_t>(index) < all->size(), "There is no device ", static_cast<int>(index), ": ", all->size(),
      " devices are visible.");
  return (*all)[index];
}

at::Generator new_generator(c10::DeviceIndex device) {
  const auto index = default_generator(device).device().index(); // which refuses what is out of range
  anyaccel_generator native = 0;
  check(anyaccel_generator_create(c10::default_rng_seed_val, &native));
  return at::make_generator<Philox>(index, native, true);
}

at::Generator generator_of(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  if (!given.has_value() || !given->defined()) {
    return default_generator(device);
  }
  TORCH_CHECK(
      given->device().type() == kDevice, "Expected a generator of the device ", c10::DeviceTypeName(kDevice, true),
      ", not one of ", given->device(), ".");
  return *given;
}

anyaccel_generator native_of(const at::Generator& generator) {
  return generator.get<Philox>()->native();
}

void draw_seed(const at::Tensor& seed, const at::Generator& generator) {
  anyaccel_random bits{};
  bits.struct_size = sizeof(bits);
  bits.distribution = ANYACCEL_RANDOM_BITS;
  bits.dtype = static_cast<uint32_t>(at::kLong);
  check(anyaccel_fill_random(seed.mutable_data_ptr(), 1, &bits, native_of(generator), ANYACCEL_CURRENT_STREAM));
}

} // namespace torch_anyaccel
