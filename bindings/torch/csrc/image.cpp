#include "image.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/as_strided_native.h>

#include <algorithm>

namespace torch_anyaccel {

namespace {

// The fewest runs of bytes that cover a tensor's elements.
struct Runs {
  explicit Runs(const at::Tensor& tensor) : item(tensor.element_size()), length(item) {
    if (tensor.numel() == 0) {
      length = 0;
      return;
    }
    for (const auto d : c10::irange(tensor.dim())) {
      if (tensor.size(d) != 1) {
        outer.push_back({tensor.size(d), tensor.stride(d) * static_cast<int64_t>(item)});
      }
      span += (tensor.size(d) - 1) * tensor.stride(d);
    }
    ++span;
    std::sort(outer.begin(), outer.end(), [](const Axis& a, const Axis& b) { return a.step > b.step; });
    // Elements that are the same ones in memory are covered once.
    while (!outer.empty() && outer.back().step == 0) {
      outer.pop_back();
    }
    while (!outer.empty() && outer.back().step == static_cast<int64_t>(length)) {
      length *= outer.back().count;
      outer.pop_back();
    }
    for (const auto& axis : outer) {
      count *= axis.count;
    }
  }

  template <typename Each>
  void each(Each each) const {
    if (length == 0) {
      return;
    }
    std::vector<int64_t> at(outer.size(), 0);
    for (int64_t offset = 0;;) {
      each(offset, length);
      size_t d = outer.size();
      for (; d > 0; --d) {
        const auto& axis = outer[d - 1];
        offset += axis.step;
        if (++at[d - 1] < axis.count) {
          break;
        }
        offset -= axis.count * axis.step;
        at[d - 1] = 0;
      }
      if (d == 0) {
        return;
      }
    }
  }

  struct Axis {
    int64_t count;
    int64_t step; // in bytes
  };
  size_t item;
  size_t length; // of a run, in bytes
  int64_t count = 1;
  int64_t span = 0; // in elements
  std::vector<Axis> outer;
};

// From how many runs on it is worth reading what lies between them too, if that is no more than the elements.
constexpr int64_t kManyRuns = 64;

void copy_runs(const at::Tensor& to, const at::Tensor& from, c10::DeviceIndex device) {
  const auto stream = current_stream(device);
  auto* destination = static_cast<char*>(to.mutable_data_ptr());
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  Runs(to).each([&](int64_t offset, size_t length) {
    copy_async(destination + offset, to.device(), source + offset, from.device(), length, stream);
  });
}

} // namespace

at::Tensor make_image(const at::Tensor& of, Room room) {
  const int64_t span = Runs(of).span;
  auto* allocator = room == Room::Pinned ? at::getHostAllocator(kDevice) : c10::GetAllocator(c10::DeviceType::CPU);
  const at::Tensor flat = at::detail::empty_generic(
      {span}, allocator, c10::DispatchKeySet(c10::DispatchKey::CPU), of.scalar_type(), std::nullopt);
  auto image = at::native::as_strided_tensorimpl(flat, of.sizes(), of.strides(), 0);
  image._set_conj(of.is_conj());
  image._set_neg(of.is_neg());
  return image;
}

void download(const at::Tensor& image, const at::Tensor& from) {
  const Runs runs(from);
  const auto span = static_cast<int64_t>(runs.span * runs.item);
  if (runs.count > kManyRuns && span <= 2 * runs.count * static_cast<int64_t>(runs.length)) {
    const auto stream = current_stream(from.device().index());
    copy_async(image.mutable_data_ptr(), image.device(), from.const_data_ptr(), from.device(), span, stream);
  } else {
    download_exactly(image, from);
  }
}

void download_exactly(const at::Tensor& host, const at::Tensor& from) {
  copy_runs(host, from, from.device().index());
}

void upload(const at::Tensor& to, const at::Tensor& image) {
  copy_runs(to, image, to.device().index());
}

void copy_on_device(const at::Tensor& to, const at::Tensor& from) {
  copy_runs(to, from, from.device().index());
}

void fill_elements(const at::Tensor& to, const at::Tensor& element) {
  const auto stream = to_native(current_stream(to.device().index()));
  auto* bytes = static_cast<char*>(to.mutable_data_ptr());
  Runs(to).each([&](int64_t offset, size_t length) {
    check(anyaccel_fill(bytes + offset, length, element.const_data_ptr(), element.element_size(), stream));
  });
}

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.is_conj() != b.is_conj() || a.is_neg() != b.is_neg()) {
    return false;
  }
  if (a.sizes() != b.sizes()) {
    return false;
  }
  for (const auto d : c10::irange(a.dim())) {
    if (a.size(d) > 1 && (a.stride(d) != b.stride(d) || a.stride(d) == 0)) {
      return false;
    }
  }
  return true;
}

} // namespace torch_anyaccel
