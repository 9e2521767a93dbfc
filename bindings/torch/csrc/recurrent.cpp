// Cells of LSTM and GRU networks. PyTorch takes them to be fused on every device but the CPU, so the CPU has none; these are
// made of other operators. A cell keeps what its derivative needs: the gates, side by side.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <optional>

namespace torch_anyaccel {

namespace {

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor side_by_side(at::TensorList parts) {
  return at::cat(parts, 1);
}

at::Tensor with_bias(const at::Tensor& gates, const MaybeTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

at::Tensor bias_gradient(const at::Tensor& gates, bool has_bias) {
  return has_bias ? gates.sum(0) : at::Tensor();
}

// The derivatives of the two functions, from their results.
at::Tensor of_sigmoid(const at::Tensor& result) {
  return result * (1 - result);
}

at::Tensor of_tanh(const at::Tensor& result) {
  return 1 - result * result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& before, const MaybeTensor& input_bias,
    const MaybeTensor& hidden_bias) {
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto in = at::sigmoid(gates[0]);
  const auto forget = at::sigmoid(gates[1]);
  const auto cell = at::tanh(gates[2]);
  const auto out = at::sigmoid(gates[3]);
  const auto after = forget * before + in * cell;
  return {out * at::tanh(after), after, side_by_side({in, forget, cell, out})};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const MaybeTensor& hidden_gradient, const MaybeTensor& cell_gradient, const at::Tensor& before, const at::Tensor& after,
    const at::Tensor& gates, bool has_bias) {
  const bool has_hidden = hidden_gradient && hidden_gradient->defined();
  const bool has_cell = cell_gradient && cell_gradient->defined();
  if (!has_hidden && !has_cell) {
    return {};
  }
  const auto of_hidden = has_hidden ? *hidden_gradient : at::zeros_like(after);
  const auto parts = gates.chunk(4, 1);
  const auto &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  const auto squashed = at::tanh(after);
  auto of_after = of_hidden * out * of_tanh(squashed);
  if (has_cell) {
    of_after = of_after + *cell_gradient;
  }
  const auto of_gates = side_by_side(
      {of_after * cell * of_sigmoid(in), of_after * before * of_sigmoid(forget), of_after * in * of_tanh(cell),
       of_hidden * squashed * of_sigmoid(out)});
  return {of_gates, of_after * forget, bias_gradient(of_gates, has_bias)};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& before, const MaybeTensor& input_bias,
    const MaybeTensor& hidden_bias) {
  const auto input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = at::sigmoid(input[0] + hidden[0]);
  const auto update = at::sigmoid(input[1] + hidden[1]);
  const auto fresh = at::tanh(input[2] + reset * hidden[2]);
  return {fresh + update * (before - fresh), side_by_side({reset, update, fresh, before, hidden[2]})};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& gradient, const at::Tensor& kept, bool has_bias) {
  const auto parts = kept.chunk(5, 1);
  const auto &reset = parts[0], &update = parts[1], &fresh = parts[2], &before = parts[3], &hidden = parts[4];
  const auto of_fresh = gradient * (1 - update) * of_tanh(fresh);
  const auto of_update = gradient * (before - fresh) * of_sigmoid(update);
  const auto of_reset = of_fresh * hidden * of_sigmoid(reset);
  const auto of_input = side_by_side({of_reset, of_update, of_fresh});
  const auto of_hidden = side_by_side({of_reset, of_update, of_fresh * reset});
  return {of_input, of_hidden, gradient * update, bias_gradient(of_input, has_bias), bias_gradient(of_hidden, has_bias)};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

} // namespace torch_anyaccel
