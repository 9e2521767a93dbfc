// Random operators that draw on the device, through the runtime's Philox.

#include "random.h"

#include "generator.h"
#include "runtime.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <limits>

namespace torch_anyaccel {

namespace {

namespace templates = at::native::templates;

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
void fill(const at::Tensor& self, anyaccel_random random, const MaybeGenerator& generator) {
  // A generator of this device brings the CPU's tensors here too.
  TORCH_CHECK(
      self.device().type() == kDevice, "Expected a generator of the device ", self.device(), ", not one of ",
      c10::DeviceTypeName(kDevice, true), ".");
  if (self.numel() == 0) {
    return;
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
}

// Kernels of PyTorch's templates, which check and round what is asked, and call them for tensors that have elements.
template <uint32_t distribution>
struct Draw {
  template <typename>
  struct Kernel {
    void operator()(const at::Tensor& to, double a, double b, const MaybeGenerator& generator) const {
      fill(to, draw(distribution, a, b), generator);
    }

    void operator()(const at::Tensor& to, double a, const MaybeGenerator& generator) const {
      (*this)(to, a, 0, generator);
    }

    void operator()(const at::Tensor& to, const MaybeGenerator& generator) const {
      (*this)(to, 0, 0, generator);
    }

    // Given an iterator over the tensor.
    template <typename... Given>
    void operator()(at::TensorIterator& to, const Given&... given) const {
      (*this)(to.tensor(0), given...);
    }
  };
};

template <typename>
struct BernoulliOfTensor {
  void operator()(const at::Tensor& to, const at::Tensor& p, const MaybeGenerator& generator) const {
    const auto chances = p.to(to.device()).expand(to.sizes());
    auto drawn = at::empty_like(to, to.options().dtype(chances.scalar_type()), c10::MemoryFormat::Contiguous);
    drawn.uniform_(0, 1, generator);
    to.copy_(at::lt(drawn, chances));
  }
};

template <typename>
struct Integers {
  void operator()(at::TensorIterator& to, uint64_t count, int64_t from, const MaybeGenerator& generator) const {
    auto random = draw(ANYACCEL_RANDOM_INTEGERS);
    random.from = from;
    random.count = count;
    fill(to.tensor(0), random, generator);
  }

  void operator()(at::TensorIterator& to, const MaybeGenerator& generator) const {
    (*this)(to, 0, std::numeric_limits<int64_t>::min(), generator); // all 2^64
  }
};

at::Tensor& uniform_(at::Tensor& self, double from, double to, MaybeGenerator generator) {
  return templates::uniform_impl_<Draw<ANYACCEL_RANDOM_UNIFORM>::Kernel, void>(self, from, to, std::move(generator));
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, MaybeGenerator generator) {
  return templates::normal_impl_<Draw<ANYACCEL_RANDOM_NORMAL>::Kernel, void>(self, mean, std, std::move(generator));
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double std, MaybeGenerator generator) {
  return templates::log_normal_impl_<Draw<ANYACCEL_RANDOM_LOG_NORMAL>::Kernel, void>(self, mean, std, std::move(generator));
}

at::Tensor& exponential_(at::Tensor& self, double lambda, MaybeGenerator generator) {
  return templates::exponential_impl_<Draw<ANYACCEL_RANDOM_EXPONENTIAL>::Kernel, void>(self, lambda, std::move(generator));
}

at::Tensor& geometric_(at::Tensor& self, double p, MaybeGenerator generator) {
  return templates::geometric_impl_<Draw<ANYACCEL_RANDOM_GEOMETRIC>::Kernel, void>(self, p, std::move(generator));
}

at::Tensor& bernoulli_(at::Tensor& self, double p, MaybeGenerator generator) {
  return templates::bernoulli_impl_<Draw<ANYACCEL_RANDOM_BERNOULLI>::Kernel, void>(self, p, std::move(generator));
}

at::Tensor& bernoulli_tensor_(at::Tensor& self, const at::Tensor& p, MaybeGenerator generator) {
  return templates::bernoulli_impl_<BernoulliOfTensor, void>(self, p, std::move(generator));
}

at::Tensor& random_(at::Tensor& self, MaybeGenerator generator) {
  return templates::random_impl<Draw<ANYACCEL_RANDOM_WHOLE_NUMBERS>::Kernel, void>(self, std::move(generator));
}

at::Tensor& random_from(at::Tensor& self, int64_t from, std::optional<int64_t> to, MaybeGenerator generator) {
  return templates::random_from_to_impl<Integers, void>(self, from, to, std::move(generator));
}

at::Tensor& random_to(at::Tensor& self, int64_t to, MaybeGenerator generator) {
  return random_from(self, 0, to, std::move(generator));
}

at::Tensor& randperm(int64_t n, MaybeGenerator generator, at::Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::native::check_supported_max_int_with_precision(n, result);
  result.resize_({n});
  const bool direct = result.scalar_type() == at::kLong || result.scalar_type() == at::kInt;
  const auto drawn = direct ? result : at::empty_like(result, result.options().dtype(at::kLong));
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
  kept.bernoulli_(1 - p);
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
