#include "image.h"

#include <ATen/core/CachingHostAllocator.h>

#include <algorithm>
#include <tuple>

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

c10::Storage room_for(size_t bytes, Room room) {
  auto* allocator = room == Room::Pinned ? at::getHostAllocator(kDevice) : c10::GetAllocator(c10::DeviceType::CPU);
  return {c10::Storage::use_byte_size_t(), bytes, allocator->allocate(bytes), allocator, true};
}

at::Tensor image_in(c10::Storage memory, int64_t offset, const at::Tensor& of) {
  auto image = at::detail::make_tensor<c10::TensorImpl>(
      std::move(memory), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(of.scalar_type()));
  image.unsafeGetTensorImpl()->set_sizes_and_strides(of.sizes(), of.strides(), offset);
  image._set_conj(of.is_conj());
  image._set_neg(of.is_neg());
  return image;
}

// From how many runs on it is worth reading what lies between them too, if that is no more than the elements.
constexpr int64_t kManyRuns = 64;

} // namespace

at::Tensor make_image(const at::Tensor& of, Room room) {
  const Runs runs(of);
  return image_in(room_for(runs.span * runs.item, room), 0, of);
}

std::vector<at::Tensor> make_overlapping_images(const std::vector<at::Tensor>& of, Room room) {
  struct Place {
    size_t index;
    c10::DeviceIndex device;
    uintptr_t begin;
    uintptr_t end;
  };
  std::vector<Place> places;
  for (const auto i : c10::irange(of.size())) {
    const auto begin = reinterpret_cast<uintptr_t>(of[i].const_data_ptr());
    const Runs runs(of[i]);
    places.push_back({i, of[i].device().index(), begin, begin + runs.span * runs.item});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.device, a.begin, a.end) < std::tie(b.device, b.begin, b.end);
  });
  std::vector<at::Tensor> images(of.size());
  for (auto first = places.begin(); first != places.end();) {
    auto last = first;
    auto end = first->end;
    for (; last != places.end() && last->device == first->device && (last == first || last->begin < end); ++last) {
      end = std::max(end, last->end);
    }
    const auto memory = room_for(end - first->begin, room);
    for (auto place = first; place != last; ++place) {
      const auto& tensor = of[place->index];
      const auto bytes = place->begin - first->begin;
      const auto item = tensor.element_size();
      images[place->index] = bytes % item == 0 ? image_in(memory, bytes / item, tensor) : make_image(tensor, room);
    }
    first = last;
  }
  return images;
}

void download(const at::Tensor& image, const at::Tensor& from) {
  const Runs runs(from);
  const auto span = static_cast<int64_t>(runs.span * runs.item);
  if (runs.count > kManyRuns && span <= 2 * runs.count * static_cast<int64_t>(runs.length)) {
    const auto stream = current_stream(from.device().index());
    copy_async(image.mutable_data_ptr(), image.device(), from.const_data_ptr(), from.device(), span, stream);
  } else {
    copy_elements(image, from);
  }
}

void copy_elements(const at::Tensor& to, const at::Tensor& from) {
  const auto& ours = from.is_cpu() ? to : from;
  const auto stream = current_stream(ours.device().index());
  auto* destination = static_cast<char*>(to.mutable_data_ptr());
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  Runs(to).each([&](int64_t offset, size_t length) {
    copy_async(destination + offset, to.device(), source + offset, from.device(), length, stream);
  });
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
