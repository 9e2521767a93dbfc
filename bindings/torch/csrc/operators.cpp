// The operators that every other one needs: memory, views, copies.

#include "host_call.h"
#include "image.h"
#include "memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/record_stream_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace torch_anyaccel {

namespace {

using OptionalType = std::optional<c10::ScalarType>;
using OptionalLayout = std::optional<c10::Layout>;
using OptionalDevice = std::optional<c10::Device>;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device checked_device(OptionalLayout layout, OptionalDevice device, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      c10::layout_or_default(layout) == c10::Layout::Strided, "aten::empty is not available for sparse tensors of the device ",
      c10::DeviceTypeName(kDevice, true), ".");
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only tensors of the CPU can be pinned.");
  return c10::device_or_default(device);
}

// Whether what nobody has written is to be NaN, or the largest number: programs may ask for that.
bool fills_memory() {
  const auto& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

at::Tensor fresh(at::Tensor tensor) {
  if (C10_UNLIKELY(fills_memory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty(
    c10::IntArrayRef size, OptionalType dtype, OptionalLayout layout, OptionalDevice device, std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(checked_device(layout, device, pin_memory));
  return fresh(at::detail::empty_generic(size, c10::GetAllocator(kDevice), kKeys, c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, OptionalType dtype, OptionalLayout layout, OptionalDevice device,
    std::optional<bool> pin_memory) {
  const c10::DeviceGuard guard(checked_device(layout, device, pin_memory));
  auto* allocator = c10::GetAllocator(kDevice);
  return fresh(at::detail::empty_strided_generic(size, stride, allocator, kKeys, c10::dtype_or_default(dtype)));
}

// Gives no memory.
struct Nothing final : c10::Allocator {
  c10::DataPtr allocate(size_t) override {
    return {nullptr, nullptr, raw_deleter(), c10::Device(kDevice, current_device())};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &c10::detail::deleteNothing;
  }

  void copy_data(void*, const void*, size_t) const override {}
};

// Zeros without memory, which derivatives of derivatives are made of. Where operators read them PyTorch puts real ones in their
// place.
at::Tensor efficient_zeros(
    c10::IntArrayRef size, OptionalType dtype, OptionalLayout layout, OptionalDevice device, std::optional<bool> pin_memory) {
  const c10::DeviceGuard guard(checked_device(layout, device, pin_memory));
  static Nothing nothing; // storages refer to it
  constexpr auto keys = kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &nothing, keys, c10::dtype_or_default(dtype), std::nullopt);
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  if (self.sizes() == size && !format) {
    return self;
  }
  auto* impl = self.unsafeGetTensorImpl();
  const auto before = self.storage().nbytes();
  const auto needed = at::detail::computeStorageNbytesContiguous(size, self.element_size(), self.storage_offset());
  impl->set_sizes_contiguous(size);
  if (format) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  if (self.numel() != 0 && before < needed) {
    resize_storage(self.storage(), needed);
  }
  if (C10_UNLIKELY(fills_memory())) {
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(before));
  }
  return self;
}

at::Tensor& set_storage(
    at::Tensor& self, at::Storage storage, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  const auto item = self.element_size();
  const auto needed = stride.data() == nullptr || stride.size() != size.size()
      ? at::detail::computeStorageNbytesContiguous(size, item, offset)
      : at::detail::computeStorageNbytes(size, stride, item, offset);
  if (storage.nbytes() < needed && storage.device().type() == kDevice && storage.resizable()) {
    resize_storage(storage, needed);
  }
  return at::native::set_storage_cpu_(self, std::move(storage), offset, size, stride);
}

at::Tensor& set_nothing(at::Tensor& self) {
  const c10::OptionalDeviceGuard guard(self.device());
  at::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::GetAllocator(kDevice), true);
  return set_storage(self, std::move(storage), 0, {0}, {});
}

// The CPU's result for whatever can't be copied as it is: other types, other strides.
void copy_by_host(const at::Tensor& from, const at::Tensor& to) {
  static const auto copy = find_operator("aten::copy_", "");
  torch::jit::Stack stack{to, from, false};
  call_on_host(copy, copy, &stack);
}

void copy_between(const at::Tensor& from, const at::Tensor& to) {
  if (!same_layout(from, to)) {
    // The other device's part of the work is over when this returns.
    copy_by_host(from, to);
    return;
  }
  const auto ours = current_stream(from.device().index());
  const auto theirs = current_stream(to.device().index());
  order_after(ours, theirs);
  copy_elements(to, from);
  order_after(theirs, ours);
}

void copy_to_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const auto stream = current_stream(to.device().index());
  const bool pinned = from.is_pinned();
  if (same_layout(from, to) && (pinned || !is_capturing(stream))) {
    copy_elements(to, from);
    if (pinned && !non_blocking && !is_capturing(stream)) {
      wait(stream);
    }
    return;
  }
  auto image = make_image(to, Room::Pinned);
  image.copy_(from);
  copy_elements(to, image);
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const auto stream = current_stream(from.device().index());
  const bool pinned = to.is_pinned();
  const bool direct = same_layout(from, to);
  if (is_capturing(stream)) {
    TORCH_CHECK(
        pinned && direct, "A copy from the device ", from.device(), " to the CPU (Tensor.cpu(), Tensor.to(), Tensor.copy_()) ",
        "can't be captured into a graph, unless it is to pinned memory and neither converts nor transposes.");
    copy_elements(to, from);
    return;
  }
  if (!direct || (!pinned && !to.is_non_overlapping_and_dense())) {
    auto image = make_image(from, Room::Pinned);
    download(image, from);
    wait(stream);
    to.copy_(image);
    return;
  }
  copy_elements(to, from);
  if (!pinned || !non_blocking) {
    wait(stream);
  }
}

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  const at::Tensor element = at::detail::empty_cpu({}, self.scalar_type());
  element.fill_(value);
  fill_elements(self, element);
  return self;
}

at::Tensor& zero_(at::Tensor& self) {
  return fill_scalar(self, 0);
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& to, bool non_blocking) {
  TORCH_CHECK(source.defined() && to.defined(), "A copy needs two tensors.");
  const auto from = source.sizes() == to.sizes() ? source : source.expand(to.sizes());
  if (to.numel() == 0) {
    return to;
  }
  const bool from_device = from.device().type() == kDevice;
  const bool to_device = to.device().type() == kDevice;
  const c10::DeviceGuard guard(from_device ? from.device() : to.device());
  if (from_device && to_device) {
    copy_between(from, to);
  } else if (to_device) {
    TORCH_CHECK_NOT_IMPLEMENTED(from.is_cpu(), "Tensors can't be copied from ", from.device(), " to ", to.device(), ".");
    copy_to_device(from, to, non_blocking);
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(to.is_cpu(), "Tensors can't be copied from ", from.device(), " to ", to.device(), ".");
    copy_to_host(from, to, non_blocking);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const auto stream = current_stream(self.device().index());
  TORCH_CHECK(
      !is_capturing(stream), "aten::_local_scalar_dense (Tensor.item(), bool(tensor), int(tensor), float(tensor)) can't be ",
      "captured into a graph: the value is known when the graph is replayed only.");
  auto image = make_image(self, Room::Pageable);
  download(image, self);
  wait(stream);
  return image.item();
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  record_use(self.storage().data_ptr(), stream);
}

// Whether `tensor.data = other` may change what the tensor is. With it Module.to() keeps a module's parameters the objects that
// they are, which optimizers hold.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto is_plain = [](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && !tensor.is_quantized() && (tensor.is_cpu() || tensor.device().type() == kDevice);
  };
  return is_plain(self) && is_plain(from);
}

// PyTorch's operator for devices that bring their own convolution; the CPU's kernel for it refuses.
void convolution(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const auto cpu = find_operator("aten::convolution", "");
  call_on_host(op, cpu, stack);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  static const auto op = find_operator("aten::convolution_backward", "");
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  torch::jit::Stack stack{
      grad, input, weight, c10::IValue(std::vector<int64_t>{channels}), stride, padding, dilation, transposed, output_padding,
      groups, c10::IValue(std::vector<bool>(mask.begin(), mask.end()))};
  call_on_host(op, op, &stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_efficientzerotensor", &efficient_zeros);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(&at::native::set_));
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_", &set_nothing);
  m.impl("is_set_to", &at::native::is_set_to);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  m.impl("record_stream", &record_stream);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("fill_.Scalar", &fill_scalar);
  m.impl("zero_", &zero_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable", &convolution_backward);
}

// Copies see to the bits themselves; the general way would copy into a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

} // namespace torch_anyaccel
