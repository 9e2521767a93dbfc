// Generators of random numbers.
#pragma once

#include "runtime.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace torch_anyaccel {

// The default generator of a device.
const at::Generator& default_generator(c10::DeviceIndex device);

// A generator of one's own, with PyTorch's default seed.
at::Generator new_generator(c10::DeviceIndex device);

// The one that an operator was given, or the default one.
at::Generator generator_of(const std::optional<at::Generator>& given, c10::DeviceIndex device);

// Its number for the C library.
anyaccel_generator native_of(const at::Generator& generator);

// Enqueues 64 random bits into a tensor of one int64: where the CPU's kernels, which have generators of another kind, begin.
// Captured, each replay draws others.
void draw_seed(const at::Tensor& seed, const at::Generator& generator);

} // namespace torch_anyaccel
