// Tensors of the device as the host sees them.
//
// An image of a tensor is a tensor in host memory with the same sizes, strides and type. Its storage is as long as the
// span of the tensor's elements, so every element has the same place in both, and copies between them are those of runs
// of bytes. Writing an image back touches the tensor's own elements only, never those between them, which work of another
// stream may be writing.
//
// Nothing here looks at the device's memory other than by copies.
#pragma once

#include "runtime.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_anyaccel {

// Where an image lives.
enum class Room {
  Pageable, // ordinary memory: copies may wait
  Pinned, // copies are asynchronous; it is reused once those of its streams have ended
};

// An image without contents.
at::Tensor make_image(const at::Tensor& of, Room room);

// Images without contents that overlap where the tensors do.
std::vector<at::Tensor> make_overlapping_images(const std::vector<at::Tensor>& of, Room room);

// Enqueue copies on the current stream of the device, of the source's if both are of one. The sizes and strides are equal but
// for dimensions of one element. What lies between the elements is left alone, but in images that are downloaded.
void copy_elements(const at::Tensor& to, const at::Tensor& from);
void download(const at::Tensor& image, const at::Tensor& from);

// Enqueues a fill with one element, which is a tensor of the host of the same type.
void fill_elements(const at::Tensor& to, const at::Tensor& element);

// Whether elements have the same places and bytes in both.
bool same_layout(const at::Tensor& a, const at::Tensor& b);

} // namespace torch_anyaccel
