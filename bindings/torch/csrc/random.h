#pragma once

#include <cstdint>

namespace torch_anyaccel {

// Which element takes which part of a generator's sequence, from now on: ANYACCEL_LAYOUT_*.
void set_random_layout(uint32_t layout, uint32_t multiprocessors, uint32_t threads_per_multiprocessor);

} // namespace torch_anyaccel
