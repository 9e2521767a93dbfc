// Attention in one operator: the CPU's, where it takes what it is given. PyTorch's own way for every device makes it of others.

#include "host_call.h"

#include <ATen/OpMathType.h>
#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <optional>
#include <tuple>

namespace torch_anyaccel {

namespace {

using MaybeTensor = std::optional<at::Tensor>;
using torch::jit::Stack;

// Of tensors that torch.func transforms: there is no vmap of the operator, and no derivative of its derivative.
constexpr c10::DispatchKeySet kTransformed({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});

// The CPU's choice.
int64_t choose(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const MaybeTensor& mask, double dropout,
    bool causal, std::optional<double> scale, bool grouped) {
  auto keys = query.key_set() | key.key_set() | value.key_set();
  if (mask && mask->defined()) {
    keys = keys | mask->key_set();
  }
  if (keys.has_any(kTransformed)) {
    return static_cast<int64_t>(at::SDPBackend::math);
  }
  const auto choice = at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout, causal, scale, grouped);
  const bool fused = choice == static_cast<int64_t>(at::SDPBackend::flash_attention);
  return fused ? static_cast<int64_t>(at::SDPBackend::overrideable) : choice;
}

// The CPU's kernels want a batch.
at::Tensor batched(const at::Tensor& tensor) {
  return tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor;
}

MaybeTensor batched_mask(const MaybeTensor& mask) {
  return mask && mask->defined() ? std::optional(batched(*mask)) : std::nullopt;
}

// With the strides that PyTorch foretells of results.
at::Tensor placed(const at::Tensor& result, const at::Tensor& like) {
  auto place = at::empty_like(like);
  const auto same = result.view_as(place);
  return same.strides() == place.strides() ? same : place.copy_(same);
}

using Forward = std::tuple<
    at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

Forward forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const MaybeTensor& bias, double dropout,
    bool causal, bool, std::optional<double> scale) {
  static const auto op = find_operator("aten::_scaled_dot_product_flash_attention_for_cpu", "");
  Stack stack{batched(query), batched(key), batched(value), dropout, causal, batched_mask(bias), scale};
  call_on_host(op, op, &stack);
  const auto number = [&] { return at::empty({}, query.options().dtype(at::kLong)); };
  const auto out = placed(stack[0].toTensor(), query);
  return {out, stack[1].toTensor(), {}, {}, query.sym_size(-2), key.sym_size(-2), number(), number(), {}};
}

// Of the numbers that are added to the products of query and key, which the CPU's kernel takes for constants.
at::Tensor bias_gradient(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& bias,
    const at::Tensor& out, bool causal, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(!causal, "Attention that is causal has no derivative by its mask.");
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::toOpMathType(tensor.scalar_type())); };
  const auto factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  const auto weights = at::softmax(at::matmul(wide(query), wide(key).mT()) * factor + wide(bias), -1);
  const auto of_weights = at::matmul(wide(gradient), wide(value).mT());
  const auto of_all = (wide(gradient) * wide(out)).sum(-1, true);
  return (weights * (of_weights - of_all)).sum_to_size(bias.sizes()).to(bias.scalar_type());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& bias,
    std::array<bool, 4> wanted, const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&,
    c10::SymInt, c10::SymInt, double dropout, bool causal, const at::Tensor&, const at::Tensor&, std::optional<double> scale) {
  if (!gradient.defined()) {
    return {};
  }
  static const auto op = find_operator("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "");
  Stack stack{
      batched(gradient), batched(query), batched(key), batched(value), batched(out), logsumexp, dropout, causal,
      batched_mask(bias), scale};
  call_on_host(op, op, &stack);
  const auto result = [&](size_t i, const at::Tensor& of) {
    return wanted[i] ? placed(stack[i].toTensor(), of) : at::Tensor();
  };
  return {
      result(0, query), result(1, key), result(2, value),
      wanted[3] && bias.defined() ? bias_gradient(gradient, query, key, value, bias, out, causal, scale) : at::Tensor()};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", &choose);
  m.impl("_scaled_dot_product_fused_attention_overrideable", &forward);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", &backward);
}

} // namespace torch_anyaccel

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_anyaccel::choose)

} // namespace at::native
