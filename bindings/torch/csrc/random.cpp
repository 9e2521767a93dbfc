// Random operators that draw on the device, through the runtime's Philox.

#include "random.h"

#include "generator.h"
#include "runtime.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

namespace torch_anyaccel {

namespace {

using MaybeGenerator = std::optional<at::Generator>;

// The layout of all draws: a setting of the process, changed before it matters.
struct {
  uint32_t layout = ANYACCEL_LAYOUT_PORTABLE;
  uint32_t multiprocessors = 0;
  uint32_t threads = 0;
} layout;

anyaccel_random draw(uint32_t distribution, double a = 0, double b = 0) {
  anyaccel_random random{};
  random.struct_size = sizeof(random);
  random.distribution = distribution;
  random.a = a;
  random.b = b;
  return random;
}

// Fills a tensor. Elements are numbered as in a contiguous one.
at::Tensor& fill(at::Tensor& self, anyaccel_random random, const MaybeGenerator& generator) {
  // A generator of this device brings the CPU's tensors here too.
  TORCH_CHECK(
      self.device().type() == kDevice, "Expected a generator of the device ", self.device(), ", not one of ",
      c10::DeviceTypeName(kDevice, true), ".");
  if (self.numel() == 0) {
    return self;
  }
  const c10::DeviceGuard guard(self.device());
  const bool direct = self.is_contiguous();
  const auto to = direct ? self : at::empty_like(self, self.options(), c10::MemoryFormat::Contiguous);
  random.dtype = static_cast<uint32_t>(self.scalar_type());
  // Permutations have no order of PyTorch's CUDA kernels.
  random.layout = random.distribution == ANYACCEL_RANDOM_PERMUTATION ? ANYACCEL_LAYOUT_PORTABLE : layout.layout;
  random.multiprocessors = layout.multiprocessors;
  random.threads_per_multiprocessor = layout.threads;
  const auto source = generator_of(generator, self.device().index());
  check(anyaccel_fill_random(to.mutable_data_ptr(), to.numel(), &random, native_of(source), ANYACCEL_CURRENT_STREAM));
  if (!direct) {
    self.copy_(to);
  }
  return self;
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, MaybeGenerator generator) {
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  TORCH_CHECK(
      to - from <= std::numeric_limits<double>::max() && std::isfinite(from) && std::isfinite(to),
      "uniform_ expects a finite range, but found from=", from, " and to=", to);
  return fill(self, draw(ANYACCEL_RANDOM_UNIFORM, from, to), generator);
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, MaybeGenerator generator) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  if (self.is_complex()) {
    // Real and imaginary parts have half of the variance each.
    auto parts = at::view_as_real(self);
    normal_(parts, mean, std / std::sqrt(2.0), generator);
    return self;
  }
  return fill(self, draw(ANYACCEL_RANDOM_NORMAL, mean, std), generator);
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double std, MaybeGenerator generator) {
  TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
  return fill(self, draw(ANYACCEL_RANDOM_LOG_NORMAL, mean, std), generator);
}

at::Tensor& exponential_(at::Tensor& self, double lambda, MaybeGenerator generator) {
  TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  return fill(self, draw(ANYACCEL_RANDOM_EXPONENTIAL, lambda), generator);
}

at::Tensor& geometric_(at::Tensor& self, double p, MaybeGenerator generator) {
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  return fill(self, draw(ANYACCEL_RANDOM_GEOMETRIC, p), generator);
}

at::Tensor& bernoulli_(at::Tensor& self, double p, MaybeGenerator generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return fill(self, draw(ANYACCEL_RANDOM_BERNOULLI, p), generator);
}

at::Tensor& bernoulli_tensor_(at::Tensor& self, const at::Tensor& p, MaybeGenerator generator) {
  const auto chances = p.to(self.device()).expand(self.sizes());
  auto drawn = at::empty_like(self, self.options().dtype(chances.scalar_type()), c10::MemoryFormat::Contiguous);
  uniform_(drawn, 0, 1, generator);
  return self.copy_(at::lt(drawn, chances));
}

// The largest whole number that PyTorch draws of a type.
int64_t largest(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return int64_t{1} << 53;
    case at::kFloat:
      return int64_t{1} << 24;
    case at::kHalf:
      return int64_t{1} << 11;
    case at::kBFloat16:
      return int64_t{1} << 8;
    case at::kBool:
      return 1;
    case at::kByte:
      return std::numeric_limits<uint8_t>::max();
    case at::kChar:
      return std::numeric_limits<int8_t>::max();
    case at::kShort:
      return std::numeric_limits<int16_t>::max();
    case at::kInt:
      return std::numeric_limits<int32_t>::max();
    case at::kLong:
      return std::numeric_limits<int64_t>::max();
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "random_ is not available for ", type, ".");
  }
}

at::Tensor& random_(at::Tensor& self, MaybeGenerator generator) {
  return fill(self, draw(ANYACCEL_RANDOM_WHOLE_NUMBERS), generator);
}

// Whole numbers from one on and below another, if there is one; else to the largest that the type has.
at::Tensor& random_from(at::Tensor& self, int64_t from, std::optional<int64_t> to, MaybeGenerator generator) {
  auto random = draw(ANYACCEL_RANDOM_INTEGERS);
  random.from = from;
  if (to.has_value()) {
    TORCH_CHECK(from < *to, "random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", *to);
    random.count = static_cast<uint64_t>(*to) - static_cast<uint64_t>(from);
  } else if (from == std::numeric_limits<int64_t>::min()) {
    random.count = 0; // all 2^64
  } else {
    random.count = static_cast<uint64_t>(largest(self.scalar_type())) - static_cast<uint64_t>(from) + 1;
  }
  return fill(self, random, generator);
}

at::Tensor& random_to(at::Tensor& self, int64_t to, MaybeGenerator generator) {
  return random_from(self, 0, to, generator);
}

at::Tensor& randperm(int64_t n, MaybeGenerator generator, at::Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  result.resize_({n});
  const bool direct = result.scalar_type() == at::kLong || result.scalar_type() == at::kInt;
  auto drawn = direct ? result : at::empty_like(result, result.options().dtype(at::kLong));
  fill(drawn, draw(ANYACCEL_RANDOM_PERMUTATION), generator);
  if (!direct) {
    result.copy_(drawn);
  }
  return result;
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0 || (train.has_value() && !*train)) {
    return {input, at::ones_like(input, input.options().dtype(at::kBool))};
  }
  if (p == 1) {
    return {at::zeros_like(input), at::zeros_like(input, input.options().dtype(at::kBool))};
  }
  auto kept = at::empty_like(input, input.options().dtype(at::kBool), c10::MemoryFormat::Contiguous);
  bernoulli_(kept, 1 - p, std::nullopt);
  return {at::mul(at::mul(input, kept), 1 / (1 - p)), kept};
}

at::Tensor native_dropout_backward(const at::Tensor& gradient, const at::Tensor& kept, double scale) {
  return at::mul(at::mul(gradient, kept), scale);
}

} // namespace

void set_random_layout(uint32_t number, uint32_t multiprocessors, uint32_t threads) {
  layout = {number, multiprocessors, threads};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", &uniform_);
  m.impl("normal_", &normal_);
  m.impl("log_normal_", &log_normal_);
  m.impl("exponential_", &exponential_);
  m.impl("geometric_", &geometric_);
  m.impl("bernoulli_.float", &bernoulli_);
  m.impl("bernoulli_.Tensor", &bernoulli_tensor_);
  m.impl("random_", &random_);
  m.impl("random_.from", &random_from);
  m.impl("random_.to", &random_to);
  m.impl("randperm.generator_out", &randperm);
  m.impl("native_dropout", &native_dropout);
  m.impl("native_dropout_backward", &native_dropout_backward);
}

} // namespace torch_anyaccel
