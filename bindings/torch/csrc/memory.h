// The allocators that PyTorch has of this device.
#pragma once

#include "runtime.h"

#include <c10/core/Storage.h>

namespace torch_anyaccel {

// Makes a storage longer or shorter, with its contents as far as they fit.
void resize_storage(const c10::Storage& storage, size_t bytes);

// Memory that is dropped is reused once what the stream has of it by then is done.
void record_use(const c10::DataPtr& memory, c10::Stream stream);

void register_allocators();

} // namespace torch_anyaccel
